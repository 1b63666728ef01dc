"""The version, where every layer can read it without a look at what is installed."""

VERSION = "0.1.0"
