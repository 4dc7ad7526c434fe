//! The cases of the contract for volumes that are read.

mod common;

mod volume {
    obento_testkit::reading_conformance!(super::common::filled().map(super::common::open));
}
