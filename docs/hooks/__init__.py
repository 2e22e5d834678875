"""Hooks of MkDocs; mkdocs.yml names `repository_texts`."""
