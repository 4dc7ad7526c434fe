use super::*;
use crate::toy::{Toy, dir, text, toy};

fn volume() -> Volume {
    toy([
        (2, dir(&[("etc", 3), ("link", 4), (".hidden", 5), ("a.txt", 6), ("b.txt", 6), ("[x]", 6)])),
        (3, dir(&[("passwd", 7), ("group", 8), ("deep", 9)])),
        (4, Toy::Link("etc")),
        (5, dir(&[("x.conf", 6)])),
        (6, text("x")),
        (7, text("root:x:0:0::/:\nada:x:1000:100::/:\n")),
        (8, text("users:x:100:\n")),
        (9, dir(&[("x.conf", 6), ("loop", 3)])),
    ])
}

fn found(pattern: &str) -> Vec<String> {
    let found = volume().glob(pattern.as_bytes()).unwrap();
    found.into_iter().map(|(path, _)| String::from_utf8(path).unwrap()).collect()
}

#[test]
fn a_pattern_matches_as_in_a_shell() {
    assert_eq!(found("/*.txt"), ["/a.txt", "/b.txt"]);
    assert_eq!(found("/[!a].txt"), ["/b.txt"]);
    assert_eq!(found("/*/passwd"), ["/etc/passwd", "/link/passwd"]);
    assert_eq!(found("/.h*"), ["/.hidden"]);
    assert_eq!(found("/*"), ["/[x]", "/a.txt", "/b.txt", "/etc", "/link"]);
    assert_eq!(found("/*/"), ["/etc"]);
    assert_eq!(found("/\\[x]"), ["/[x]"]);
    assert_eq!(found("/etc/nothing*"), [""; 0]);
    assert_eq!(found("/a.txt/*"), [""; 0]);
    assert_eq!(found("/nowhere/*"), [""; 0]);
    assert_eq!(found("/"), ["/"]);
}

#[test]
fn two_stars_match_any_number_of_directories_and_end_in_circles() {
    assert_eq!(found("/**/x.conf"), ["/etc/deep/x.conf"]);
    assert_eq!(found("/etc/**"), ["/etc", "/etc/deep"]);
}

#[test]
fn owners_are_those_of_the_image() {
    let volume = volume();
    assert_eq!(volume.owners().user(1000), Some(&b"ada"[..]));
    assert_eq!((volume.owners().group(100), volume.owners().group(0)), (Some(&b"users"[..]), None));
    assert_eq!((volume.owners().uid(b"root"), volume.owners().gid(b"root")), (Some(0), None));
}

#[test]
fn a_place_is_a_path_or_an_inode() {
    let volume = volume();
    let at = |place| volume.resolve(&place, Symlinks::Keep).map(|node| node.ino().0);
    assert_eq!(at(FileSelector::Path(b"/link/passwd".to_vec())), Ok(7));
    assert_eq!(at(FileSelector::Path(b"/link".to_vec())), Ok(4));
    assert_eq!(at(FileSelector::Inode(obento_base::Ino(9))), Ok(9));
    assert!(at(FileSelector::Inode(obento_base::Ino(99))).is_err());
}

#[test]
fn sets_ranges_stars_and_escapes_match_characters_and_raw_bytes() {
    let cases: [(&[u8], &[u8], bool); 21] = [
        (b"", b"", true),
        (b"*", b"", true),
        (b"a*b*c", b"aXbYbZc", true),
        (b"a*b*c", b"aXbYbZ", false),
        (b"?", "ß".as_bytes(), true),
        (b"?", b"\xff", true),
        (b"??", b"\xff", false),
        (b"[a-c]", b"b", true),
        (b"[^a-c]", b"b", false),
        (b"[]a]", b"]", true),
        (b"[a-]", b"-", true),
        (b"[a", b"[a", true),
        ("[à-ü]".as_bytes(), "é".as_bytes(), true),
        (b"[\\]]", b"]", true),
        (b"\\*", b"*", true),
        (b"\\*", b"x", false),
        (b"a\\", b"a\\", true),
        (b"*", b".hidden", false),
        (b"\\.h*", b".hidden", true),
        (b"[\xfe-\xff]", b"\xff", true),
        (b"***a", b"bcba", true),
    ];
    for (pattern, name, expected) in cases {
        assert_eq!(matches(pattern, name), expected, "{} {}", pattern.escape_ascii(), name.escape_ascii());
    }
}

#[test]
fn a_pattern_of_many_stars_is_matched_quickly() {
    let name = [b'a'; 255];
    let pattern = b"*a".repeat(60);
    assert!(!matches(&[&pattern[..], b"b"].concat(), &name));
}

proptest::proptest! {
    #[test]
    fn any_pattern_ends(pattern in "[a*?\\[\\]!^\\\\-]{0,16}", name in "[a\\]-]{0,12}") {
        matches(pattern.as_bytes(), name.as_bytes());
    }

    #[test]
    fn an_escaped_name_matches_itself_alone(name in proptest::collection::vec(1_u8.., 1..12)) {
        let escaped: Vec<u8> = name.iter().flat_map(|&byte| if byte.is_ascii() { vec![b'\\', byte] } else { vec![byte] }).collect();
        proptest::prop_assert!(matches(&escaped, &name));
        proptest::prop_assert!(!matches(&escaped, &[&name[..], b"x"].concat()));
    }
}
