"""The explorer alone, without code, as a page on this machine, with nothing that calls the outside."""

from remat_explorer.app.server import Serving, open_app
