"""Where the project lives: what notebooks that run elsewhere install, and where links to its files lead."""

REPOSITORY = "https://github.com/nanoeuler/nanoeuler"
