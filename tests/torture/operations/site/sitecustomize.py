"""Every Python process of a campaign starts here: driver, standby, Spark's Python workers, compactors."""

import os

if "PENSTOCK_TORTURE_SWITCH" in os.environ:
    from tests.torture.operations.switch import obey

    obey(os.environ["PENSTOCK_TORTURE_SWITCH"])
