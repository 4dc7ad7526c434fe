//! Checksums beside GNU coreutils.

use std::fs;

use crate::support::{Dice, Twins, sparse};

const TOOLS: [&str; 4] = ["sha256sum", "sha512sum", "sha1sum", "md5sum"];

fn twins() -> Option<Twins> {
    let mut dice = Dice(11);
    Twins::with(&TOOLS, "48M", |tree| {
        for directory in 0..20 {
            let path = tree.join(format!("d{directory:02}"));
            fs::create_dir(&path).unwrap();
            for file in 0..30 {
                let len = dice.below(1 << (dice.0 % 17));
                fs::write(path.join(format!("f{file}")), dice.text(len)).unwrap();
            }
        }
        fs::write(tree.join("big"), dice.text(5_000_000)).unwrap();
        fs::write(tree.join("back\\slash\nline"), "odd").unwrap();
        sparse(&tree.join("holes"), 9_000_000, &[(3_000_000, b"island"), (8_999_999, b"!")]);
    })
}

#[test]
fn checksums_are_those_of_gnu_coreutils() {
    let Some(twins) = twins() else { return };
    for tool in TOOLS {
        twins.same(&[tool, "@/big", "@/holes", "@/back\\slash\nline", "@/d00/f1"]);
        twins.same(&[tool, "--tag", "@/big", "@/back\\slash\nline"]);
        twins.same(&[tool, "-z", "@/big", "@/back\\slash\nline"]);
        twins.same_with(&[tool, "-", "@/d00/f1"], b"standard input");
    }
}

#[test]
fn a_tree_has_the_checksums_of_its_files_in_the_order_of_their_names() {
    let Some(twins) = twins() else { return };
    let ours = twins.ours(&["sha256sum", "-r", "disk.img"], b"");
    assert!(ours.status.success());
    let ours = String::from_utf8(ours.stdout).unwrap();
    let line = "find tree -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum";
    let theirs = String::from_utf8(twins.theirs(&["sh", "-c", line], b"").stdout).unwrap();
    assert_eq!(ours, theirs.replace("tree/", "disk.img:/"));
    assert_eq!(ours.lines().count(), 603);
}

#[test]
fn a_list_is_checked_with_addresses_or_below_a_root() {
    let Some(twins) = twins() else { return };
    let ours = twins.ours(&["sha256sum", "-r", "@/"], b"").stdout;
    fs::write(twins.path("sums"), &ours).unwrap();
    let checked = twins.ours(&["sha256sum", "--check", "sums"], b"");
    assert_eq!((checked.status.code(), checked.stderr.as_slice()), (Some(0), &b""[..]));
    let checked = String::from_utf8(checked.stdout).unwrap();
    assert!(
        checked.lines().count() == 603 && checked.lines().all(|line| line.ends_with(": OK")),
        "{checked}"
    );
    // The list of the directory, which names files relative to it, in both formats and by other algorithms.
    for line in ["sha256sum *", "sha256sum --tag *", "md5sum -b *", "sha1sum *", "sha512sum *"] {
        let line =
            format!("cd tree; {} 2>/dev/null > ../relative; find . -type f | xargs -d '\\n' true", line);
        twins.theirs(&["sh", "-c", &line], b"");
        let tool = line.split(' ').nth(2).unwrap();
        let checked = twins.ours(&[tool, "-c", "relative", "--root", "disk.img"], b"");
        let text = String::from_utf8(checked.stdout).unwrap();
        assert_eq!(checked.status.code(), Some(0), "{line}: {text}");
        assert_eq!(text, "\\back\\\\slash\\nline: OK\nbig: OK\nholes: OK\n", "{line}");
    }
}

#[test]
fn a_list_starts_no_program_and_connects_to_no_host() {
    let Some(twins) = twins() else { return };
    let sum = "0".repeat(64);
    let list = format!("{sum}  fuse:touch started:/x\n{sum}  nfs://127.0.0.1:1/export:/x\n");
    fs::write(twins.path("sums"), list).unwrap();
    let checked = twins.ours(&["sha256sum", "--check", "sums"], b"");
    let text = String::from_utf8(checked.stderr).unwrap();
    assert_eq!(text.matches("a list cannot name a server").count(), 2, "{text}");
    assert_eq!(checked.status.code(), Some(1));
    assert!(!twins.path("started").exists());
}

#[test]
fn a_check_fails_as_that_of_gnu_coreutils_fails() {
    let Some(twins) = twins() else { return };
    let line = "cd tree; sha256sum big d00/f1 d00/f2 > ../list; sed -i '2s/^./g/; 3s/^./0/' ../list; \
                sed 's/d00.f2/none/' ../list > ../missing";
    twins.theirs(&["sh", "-c", line], b"");
    for (options, list) in [
        ("", "list"),
        ("--quiet", "list"),
        ("--status", "list"),
        ("--strict", "list"),
        ("", "missing"),
        ("--ignore-missing", "missing"),
        ("--ignore-missing --strict", "missing"),
    ] {
        let line = format!("cd tree; sha256sum -c {options} ../{list}");
        let theirs = twins.theirs(&["sh", "-c", &line], b"");
        let args = ["sha256sum", "-c"].into_iter().chain(options.split(' ').filter(|word| !word.is_empty()));
        let ours = twins.ours(&args.chain([list, "--root", "disk.img"]).collect::<Vec<_>>(), b"");
        // A file that does not exist has its message on standard error only.
        let expected = String::from_utf8(theirs.stdout).unwrap().replace("none: FAILED open or read\n", "");
        assert_eq!(String::from_utf8(ours.stdout).unwrap(), expected, "{line}");
        assert_eq!(ours.status.code(), theirs.status.code(), "{line}");
        if (options, list) == ("", "list") {
            let summary = "obento: list: 1 line is malformed\nobento: list: 1 checksum does not match\n";
            assert_eq!(String::from_utf8(ours.stderr).unwrap(), summary);
        }
    }
}

#[test]
fn a_list_without_checksums_fails_beside_a_list_whose_files_are_verified() {
    let Some(twins) = twins() else { return };
    twins.theirs(&["sh", "-c", "cd tree; sha256sum big > ../good; echo text > ../bad"], b"");
    for (lists, status, verified) in
        [(&["good", "bad"][..], 1, "big: OK\n"), (&["bad", "good"], 1, "big: OK\n"), (&["bad"], 2, "")]
    {
        let args = [&["sha256sum", "-c", "--root", "disk.img"], lists].concat();
        let output = twins.ours(&args, b"");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), verified, "{lists:?}");
        assert_eq!(output.status.code(), Some(status), "{lists:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("cannot check 'bad': the list contains no SHA-256 checksum"),
            "{lists:?}: {said}"
        );
    }
}

#[test]
fn blake3_has_the_published_vectors() {
    // Source: test_vectors.json of the BLAKE3 repository: bytes 0 to 250 repeated.
    let input = |len: u32| (0..len).map(|at| (at % 251).to_le_bytes()[0]).collect::<Vec<u8>>();
    let (long, one) = (input(102_400), input(1));
    let files = [("empty", &b""[..]), ("one", &one), ("long", &long)];
    let Some(twins) = Twins::new(&[], &files) else { return };
    let output = twins.ours(&["b3sum", "@/empty", "@/one", "@/long"], b"");
    let expected = "\
af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262  disk.img:/empty
2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213  disk.img:/one
bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085  disk.img:/long
";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn a_list_of_an_image_verifies_its_copy_under_another_name() {
    let Some(twins) = twins() else { return };
    let sums = twins.ours(&["sha256sum", "-r", "disk.img"], b"");
    let count = String::from_utf8_lossy(&sums.stdout).lines().count();
    fs::write(twins.path("sums"), sums.stdout).unwrap();
    fs::rename(twins.path("disk.img"), twins.path("moved.img")).unwrap();
    let checked = twins.ours(&["sha256sum", "-c", "sums", "--root", "moved.img"], b"");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert_eq!(said.lines().filter(|line| line.ends_with(": OK")).count(), count);
}

#[test]
fn a_list_without_images_is_explained_once() {
    let Some(twins) = twins() else { return };
    twins.theirs(&["sh", "-c", "cd tree; sha256sum big d00/f1 d00/f2 > ../list"], b"");
    let checked = twins.ours(&["sha256sum", "-c", "list"], b"");
    let said = String::from_utf8(checked.stderr).unwrap();
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert_eq!(
        said,
        "obento: cannot check the list: none of the 3 names is a path inside an image\n  \
         help: name the directory that the list describes with --root IMAGE:/DIR\n"
    );
}
