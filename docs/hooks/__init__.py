"""What MkDocs runs while it builds the site; `repository_texts` is what mkdocs.yml names."""
