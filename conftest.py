"""The top of the tests. Empty on purpose.

Options, markers and fixtures come from ``rackproof.plugin``, which an (editable) install registers;
defining one here as well would hide that the plugin lost it. What only our own tests need stands in
``tests/conftest.py``.
"""
