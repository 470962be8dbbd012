"""Files: folders of them as a source (`reading/`), folders of them as a sink (`writing/`)."""
