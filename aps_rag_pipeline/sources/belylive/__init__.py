"""BELY as a service: its REST interface, and the events that it sends."""
