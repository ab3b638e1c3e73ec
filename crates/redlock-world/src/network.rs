//! The connections between the parties of a world, and their faults.
