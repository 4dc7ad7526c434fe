//! The null driver obeys the contract, so that measurements with it apply to other drivers.

use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::FileKind;
use obento_driver::{Access, Cookie, FileSystem};
use obento_testkit::null::{LISTED, Null};
use obento_testkit::plan::{Actor, Op};
use obento_vfs::Vfs;

fn volume() -> Option<Arc<dyn FileSystem>> {
    Some(Arc::new(Null(Access::ReadOnly)))
}

/// The operations of the measurements.
#[test]
fn files_are_created_written_and_removed_without_being_stored() {
    let mut actor = Actor::new(Vfs::new(Arc::new(Null(Access::ReadWrite))));
    for op in [
        Op::Create("new".into(), FileKind::Regular, 0o644),
        Op::Unlink("new".into()),
        Op::Write("7".into(), 4096, 4096),
        Op::Chmod("8".into(), 0o600),
    ] {
        assert_eq!(actor.act(0, &op), Ok(()), "{op:?}");
    }
    let mut listed = 0;
    let root = actor.vfs().root();
    root.read_dir(Cookie::START, &mut |_| {
        listed += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(listed, LISTED);
}

mod reading {
    obento_testkit::reading_conformance!(super::volume());
}
