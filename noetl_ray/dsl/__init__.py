"""The playbook language: YAML to a validated model, templates, what a template reads."""
