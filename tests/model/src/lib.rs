//! The tests of this package are in `model.rs`, a separate target that `make check` leaves to `make test`.
