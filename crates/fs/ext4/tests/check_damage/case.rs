//! Running a case.

use crate::lab::Disk;
use crate::lab::bases::{Base, oracles};
use crate::lab::judge::{e2fsck_is_clean, findings, line, lost_to_us_alone, repaired, same};

/// Damages an intact image, and tests the findings and the repair.
pub fn run(base: &'static Base, expected: &[&str], damage: fn(&mut Disk)) {
    judge(base, expected, damage, true);
}

/// Like [`run`], for damage that `e2fsck -fn` does not report.
pub fn run_unknown(base: &'static Base, expected: &[&str], damage: fn(&mut Disk)) {
    judge(base, expected, damage, false);
}

fn judge(base: &'static Base, expected: &[&str], damage: fn(&mut Disk), is_known: bool) {
    if !oracles() {
        return;
    }
    let sound = base.disk();
    let mut damaged = sound.clone();
    damage(&mut damaged);
    assert!(sound.bytes != damaged.bytes, "nothing was damaged");
    let second = e2fsck_is_clean(&damaged.bytes);
    assert_eq!(second.is_silent(), !is_known, "e2fsck says {}", second.text);
    let found = findings(&damaged.bytes).unwrap();
    let lines: Vec<String> = found.iter().map(line).collect();
    assert!(
        same(&sound, expected, &found),
        "found {lines:#?}\nexpected {expected:#?}\ne2fsck: {}",
        second.text
    );
    repair_copy(&damaged.bytes);
}

/// Tests that after a repair nothing is found, and nothing is lost that e2fsck keeps.
fn repair_copy(damaged: &[u8]) {
    let fixed = repaired(damaged).unwrap();
    let second = e2fsck_is_clean(&fixed);
    let left: Vec<String> = findings(&fixed).unwrap().iter().map(line).collect();
    assert!(second.is_clean(), "after the repair we find {left:#?} and e2fsck reports {}", second.text);
    assert!(left.is_empty(), "after the repair we find {left:#?}");
    assert_eq!(lost_to_us_alone(damaged, &fixed), []);
}

/// Defines a test for each case.
macro_rules! cases {
    ($($name:ident($base:ident, $expected:expr, $damage:expr);)*) => {
        $(#[test]
        fn $name() {
            crate::case::run(&crate::lab::bases::$base, &$expected, $damage);
        })*
    };
}
pub(crate) use cases;
