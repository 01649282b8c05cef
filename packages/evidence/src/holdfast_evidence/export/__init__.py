"""What bundles and exports share: tables in words, names without paths of this machine, what is handed on."""
