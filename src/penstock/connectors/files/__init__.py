"""Files: folders of them as a source, folders of them as a sink."""
