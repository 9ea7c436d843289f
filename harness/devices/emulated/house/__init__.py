"""The emulated electrical and thermal house around a rack: breakers, stores, supplies, cooling."""
