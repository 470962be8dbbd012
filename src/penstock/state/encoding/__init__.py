"""Values and keys as bytes, and what is known of a type: codecs, schemas, evolution."""
