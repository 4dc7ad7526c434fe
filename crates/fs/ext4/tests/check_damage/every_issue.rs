//! Every kind of issue has a case: one damage by which it is found.

use std::collections::BTreeSet;
use std::fs;

use obento_ext4::Issue;

/// Returns the codes at the start of a string in the files with cases.
fn expected_codes() -> BTreeSet<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check_damage");
    let cases = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // Blocks with two owners are damaged in the same way each time.
    let twice = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check_twice.rs");
    // Every repair is tested for a limit that it reaches.
    let judge = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/judge.rs");
    let mut codes = BTreeSet::new();
    for path in cases.chain([twice.into(), judge.into()]) {
        let text = fs::read_to_string(path).unwrap();
        let texts = text.split('"').skip(1).step_by(2);
        let words = texts.filter_map(|text| text.split([' ', '"']).next());
        codes.extend(words.map(str::to_owned));
    }
    codes
}

#[test]
fn no_kind_of_issue_is_without_a_case() {
    let expected = expected_codes();
    let missing: Vec<_> = Issue::CODES.iter().filter(|code| !expected.contains(**code)).collect();
    assert!(missing.is_empty(), "no case of {missing:?}");
}
