"""Strikes that came later than those of simulator.whole.nemesis and its neighbours."""
