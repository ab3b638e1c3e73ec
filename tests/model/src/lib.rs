//! The tests of this package are in `model.rs`: a target of their own, which `make check` leaves to `make test`.
