//! The conformance cases for volumes that are read.

mod common;

mod volume {
    obento_testkit::reading_conformance!(super::common::filled().map(super::common::open));
}

#[test]
fn an_open_volume_passes_to_another_process() {
    if let Some(bytes) = common::filled() {
        obento_testkit::trials::handover::passes_on_reading(&obento_jffs2::Jffs2Driver, &bytes);
    }
}
