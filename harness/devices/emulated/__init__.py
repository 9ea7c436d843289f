"""An emulated rack: driver, memory, arithmetic, physics and the faults planted into them."""
