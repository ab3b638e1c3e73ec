//! Who holds a lock: clusters and candidates.
