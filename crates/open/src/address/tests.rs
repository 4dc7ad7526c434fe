use super::*;

/// Looks up the files, devices and directories that the tests name.
fn host(path: &Path) -> HostEntry {
    match path.to_str() {
        Some(
            "disk.img" | "/dev/sdb" | "a@b" | "a@1" | "odd:/image" | "/mnt/@home/d.img" | "odd" | "odd:/x",
        ) => HostEntry::File,
        Some("dir" | "new:" | "/" | "new:/dir") => HostEntry::Directory,
        _ => HostEntry::Missing,
    }
}

fn operand(text: &str) -> Result<Operand, AddressError> {
    Operand::parse_with(text.as_ref(), &host)
}

fn image(text: &str) -> (String, Option<PartSelector>, Option<FileSelector>) {
    match Address::parse_with(text.as_ref(), &host) {
        Ok(address) => (address.image.to_str().unwrap().into(), address.part, address.place),
        other => panic!("{text}: {other:?}"),
    }
}

fn path(path: &str) -> Option<FileSelector> {
    Some(FileSelector::Path(path.into()))
}

#[test]
fn the_first_split_whose_left_side_is_a_file_counts() {
    assert_eq!(image("disk.img:/etc"), ("disk.img".into(), None, path("/etc")));
    assert_eq!(image("disk.img:/a:/b"), ("disk.img".into(), None, path("/a:/b")));
    assert_eq!(image("/dev/sdb:/"), ("/dev/sdb".into(), None, path("/")));
    assert_eq!(image("disk.img"), ("disk.img".into(), None, None));
    // `odd` is a file, so the first `:/` splits although a file `odd:/x` exists.
    assert_eq!(image("odd:/x"), ("odd".into(), None, path("/x")));
}

#[test]
fn a_missing_image_is_an_error_and_never_a_host_path() {
    let missing = |name: &str| Err(AddressError::MissingImage { image: name.into() });
    assert_eq!(operand("dsik.img:/etc"), missing("dsik.img"));
    assert_eq!(operand("dsik.img@2:/etc"), missing("dsik.img"));
    assert_eq!(operand("dsik.img:<2>"), missing("dsik.img"));
    assert_eq!(operand("new:/file"), missing("new"));
    assert_eq!(operand("dir:/file"), Err(AddressError::HostDirectory { path: "dir".into() }));
    assert_eq!(
        Address::parse_with("dir".as_ref(), &host),
        Err(AddressError::HostDirectory { path: "dir".into() })
    );
    // A hint about host paths helps only with an address.
    let alone = Address::parse_with("nothing".as_ref(), &host);
    assert_eq!(alone, Err(AddressError::MissingFile { image: "nothing".into() }));
    assert_eq!(Address::parse_with("-".as_ref(), &host), Err(AddressError::ImageFromStdin));
    assert_eq!(operand(""), Err(AddressError::Empty));
    let without_image = Err(AddressError::NoImage { part: "@1".into() });
    assert_eq!(Address::parse_with("@1".as_ref(), &host), without_image);
}

#[test]
fn a_path_in_an_image_without_its_slash_is_reported_with_its_parts() {
    for text in ["disk.img:etc/passwd", "disk.img@2:etc", "disk.img:"] {
        let error = operand(text).unwrap_err();
        assert!(matches!(error, AddressError::RelativePath { .. }), "{text}: {error}");
    }
    let (image, path) = ("disk.img".to_owned(), "etc".to_owned());
    assert_eq!(operand("disk.img:etc"), Err(AddressError::RelativePath { image, path }));
    assert_eq!(operand("host:disk.img:etc"), Ok(Operand::Host("disk.img:etc".into())));
}

#[test]
fn a_host_path_is_not_an_address_or_exists_literally_or_is_escaped() {
    let host_path = |path: &str| Ok(Operand::Host(path.into()));
    assert_eq!(operand("file"), host_path("file"));
    assert_eq!(operand("a:b"), host_path("a:b"));
    assert_eq!(operand("log:12"), host_path("log:12"));
    assert_eq!(operand(":/x"), host_path(":/x"));
    assert_eq!(operand("new:/dir"), host_path("new:/dir"));
    assert_eq!(operand("host:dsik.img:/etc"), host_path("dsik.img:/etc"));
    assert_eq!(operand("host:-"), host_path("-"));
    assert_eq!(operand("disk.img"), host_path("disk.img"));
    assert_eq!(operand("-"), Ok(Operand::Stdio));
    assert_eq!(operand("host:"), Err(AddressError::EmptyHostPath));
}

#[test]
fn a_file_whose_own_name_holds_an_at_sign_wins_over_a_partition() {
    assert_eq!(image("a@b:/x"), ("a@b".into(), None, path("/x")));
    assert_eq!(image("a@1@2:/x"), ("a@1".into(), Some(PartSelector::Number(2)), path("/x")));
    assert_eq!(image("/mnt/@home/d.img:/x"), ("/mnt/@home/d.img".into(), None, path("/x")));
    assert_eq!(image("/mnt/@home/d.img@3"), ("/mnt/@home/d.img".into(), Some(PartSelector::Number(3)), None));
    assert_eq!(image("odd:/image@3:/x").0, "odd");
}

#[test]
fn a_partition_is_a_number_an_offset_or_something_it_is_called() {
    let part = |text: &str| image(&format!("disk.img@{text}:/")).1.unwrap();
    assert_eq!(part("2"), PartSelector::Number(2));
    assert_eq!(part("+1048576"), PartSelector::Offset(1 << 20));
    assert_eq!(part("+1M"), PartSelector::Offset(1 << 20));
    assert_eq!(part("+0x200"), PartSelector::Offset(512));
    assert_eq!(part("name=EFI"), PartSelector::Name(b"EFI".into()));
    assert_eq!(part("label=a%40b%3a%2F%ff"), PartSelector::Label(b"a@b:/\xff".into()));
    assert_eq!(part("uuid=ABCD-01"), PartSelector::Uuid("abcd-01".into()));
    assert_eq!(part("root"), PartSelector::Any(b"root".into()));
    assert_eq!(part("x=y"), PartSelector::Any(b"x=y".into()));
}

#[test]
fn a_misspelt_partition_is_reported_with_the_right_spelling() {
    for wrong in [
        "",
        "0",
        "99999999999",
        "+",
        "+x",
        "+-1",
        "++1",
        "+99999999999T",
        "label=%4",
        "label=%+1",
        "uuid=xyz",
        "%zz",
    ] {
        let error = operand(&format!("disk.img@{wrong}:/")).unwrap_err();
        assert!(matches!(error, AddressError::Part { .. }), "{wrong}: {error}");
        assert!(error.to_string().len() > 20, "{error}");
    }
}

#[test]
fn an_inode_is_addressed_by_its_number() {
    let inode = |ino| Some(FileSelector::Inode(Ino(ino)));
    assert_eq!(image("disk.img:<12>").2, inode(12));
    assert_eq!(image("disk.img:12").2, inode(12));
    assert_eq!(image("disk.img@2:<12>"), ("disk.img".into(), Some(PartSelector::Number(2)), inode(12)));
    assert!(matches!(operand("disk.img:<12"), Err(AddressError::RelativePath { .. })));
    assert!(matches!(operand("disk.img:#x"), Err(AddressError::Inode { .. })));
}

#[test]
fn an_address_prints_as_written_and_parses_again() {
    for text in [
        "disk.img:/etc",
        "disk.img@2:/",
        "disk.img@+512:#2",
        "disk.img@label=a%40b%3a%2f%25:/x",
        "a@1@root",
        "disk.img@uuid=ab-cd:/",
    ] {
        let address = Address::parse_with(text.as_ref(), &host).unwrap();
        assert_eq!(address.to_string(), text);
    }
    let hostile =
        Address { image: "disk.img".into(), part: None, place: Some(FileSelector::Path(b"/\x1b[2J".into())) };
    assert_eq!(hostile.to_string(), r"disk.img:/\033[2J");
}

proptest::proptest! {
    #[test]
    fn every_expression_parses_or_is_refused_with_a_reason(text in "[a@:/<>0-9%=+-]{0,24}") {
        let everywhere = |path: &Path| match path.as_os_str().len() & 1 { 0 => HostEntry::File, _ => HostEntry::Missing };
        let _ = Operand::parse_with(text.as_ref(), &everywhere);
        let _ = Address::parse_with(text.as_ref(), &everywhere);
    }

    #[test]
    fn every_part_that_prints_reads_back(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 1..12)) {
        for part in [PartSelector::Name(bytes.clone()), PartSelector::Label(bytes)] {
            proptest::prop_assert_eq!(PartSelector::parse(part.to_string().as_bytes()), Ok(part));
        }
    }
}

#[test]
fn the_name_of_a_file_never_starts_a_server() {
    for exists in [HostEntry::File, HostEntry::Directory, HostEntry::DanglingLink] {
        let host = |path: &Path| if path == "fuse:sh -c id:/x" { exists } else { HostEntry::Missing };
        let parse = |text: &str| Operand::parse_with(text.as_ref(), &host);
        let text = || "fuse:sh -c id:/x".to_owned();
        assert_eq!(parse("fuse:sh -c id:/x"), Err(AddressError::ServerOrFile { text: text() }));
        assert!(
            matches!(parse("fuse:sh -c id:/y"), Ok(Operand::Image(address)) if address.server().is_some())
        );
        assert!(matches!(parse("./fuse:sh -c id"), Ok(Operand::Host(_))));
        assert!(matches!(parse("host:fuse:sh -c id:/x"), Ok(Operand::Host(_))));
    }
    // A file can have been removed since the shell replaced the pattern by its name.
    for text in ["fuse:sh -c id", "fuse:/usr/bin/x", "fuse:"] {
        assert_eq!(operand(text), Err(AddressError::ServerWithoutPath { text: text.to_owned() }));
    }
}

#[test]
fn the_name_of_a_file_with_an_appended_place_never_starts_a_server() {
    for exists in [HostEntry::File, HostEntry::Directory, HostEntry::DanglingLink] {
        let host = |path: &Path| if path == "fuse:sh x.img" { exists } else { HostEntry::Missing };
        for place in [":/etc", ":/etc:/x", "@2:/etc", "%name:/etc", "%name@2:/"] {
            let parsed = Operand::parse_with(format!("fuse:sh x.img{place}").as_ref(), &host);
            assert_eq!(parsed, Err(AddressError::ServerOrFile { text: "fuse:sh x.img".to_owned() }));
        }
        assert!(Operand::parse_with("fuse:sh y.img:/etc".as_ref(), &host).is_ok());
    }
}

#[test]
fn a_directory_in_the_current_directory_never_starts_a_server() {
    let host = |path: &Path| match path.to_str() {
        Some("fuse:sh x:" | "fuse:sh y") => HostEntry::Directory,
        _ => HostEntry::Missing,
    };
    // The file in the directory was removed since the shell read the directory.
    for (text, name) in [("fuse:sh x:/file", "fuse:sh x:"), ("fuse:sh y/file:/etc", "fuse:sh y")] {
        let parsed = Operand::parse_with(text.as_ref(), &host);
        assert_eq!(parsed, Err(AddressError::ServerOrFile { text: name.to_owned() }));
    }
}

#[test]
fn a_long_command_line_of_a_server_is_no_file() {
    for len in [300, 5000] {
        let text = format!("fuse:sshfs host:/{}:/etc", "d".repeat(len));
        let parsed = Operand::parse(text.as_ref());
        assert!(matches!(parsed, Ok(Operand::Image(address)) if address.server().is_some()), "{len}");
    }
    assert_eq!(HostEntry::look_up(Path::new(&"n".repeat(300))), HostEntry::Missing);
}

#[test]
fn a_link_without_a_target_is_an_entry_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert_eq!(HostEntry::look_up(&link), HostEntry::DanglingLink);
    assert_eq!(HostEntry::look_up(&folder.path().join("nowhere")), HostEntry::Missing);
}
