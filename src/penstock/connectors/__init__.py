"""Sources and sinks. `protocol` is the contract; each system has a package of its own with `source` and `sink`.

Definitions are small, frozen and picklable; enumerators and committers live on the driver, readers and writers in the workers.
Systems share `formats/` and `staging/`, never import each other's packages, and know nothing of the engine.
"""
