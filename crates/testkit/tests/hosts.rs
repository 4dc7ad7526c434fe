//! The cases pass on the file system of the host, so they require only behaviour that programs can expect.

use obento_driver::{Crash, Limits, StoredProperties};
use obento_testkit::hosts::{CaseEnd, Folder, cases, run};
use obento_testkit::{Oracle, require};

#[test]
fn the_kernel_passes_the_cases_that_need_no_separate_volume() {
    if !require(&[Oracle::Root]) {
        return;
    }
    let limits = Limits {
        name_max: 255,
        symlink_max: 4095,
        link_max: 100,
        file_size_max: i64::MAX.unsigned_abs(),
        time_granularity: 1,
        uid_max: u32::MAX,
        gid_max: u32::MAX,
        keeps: StoredProperties::all(),
        crash: Crash::Whole,
    };
    let folder = tempfile::tempdir().unwrap();
    let mut host = Folder::new(folder.path().into(), limits, |_| ());
    // A test must not fill the host's disk or mount it read-only, and the limits of the host are unknown.
    let others = ["a full volume", "a read-only volume", "the largest file"];
    let is_for_volumes = |name: &str| others.iter().any(|part| name.contains(part));
    let mut passed = 0;
    for (number, case) in cases().iter().enumerate().filter(|(_, case)| !is_for_volumes(case.name)) {
        assert_eq!(run(case, number, &mut host), CaseEnd::Passed, "{}", case.name);
        passed += 1;
    }
    assert!(passed > 25, "{passed}");
}
