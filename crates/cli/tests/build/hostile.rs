//! Malicious and damaged sources: the error messages, and that nothing is created.

use std::fs;
use std::process::Stdio;

use obento_testkit::oracle::{Oracle, call, program, require};
use tar::EntryType;

use super::{Bench, text};

/// A path, a type, and the other fields of the header.
type Member<'m> = (&'m str, EntryType, &'m dyn Fn(&mut tar::Header));

/// Creates an archive with one block for each of these members.
fn archive(members: &[Member<'_>]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, kind, change) in members {
        let mut header = tar::Header::new_gnu();
        header.set_path(path).unwrap();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(0);
        change(&mut header);
        header.set_cksum();
        tar.append(&header, &b""[..]).unwrap();
    }
    tar.into_inner().unwrap()
}

/// The message for an unusable source; nothing is created from it.
#[track_caller]
fn refused(bench: &Bench, sources: &str) -> String {
    let (_, said) = bench.run(&format!("build disk.img --from {sources}"), 2);
    assert!(!bench.path("disk.img").exists(), "{said}");
    said
}

#[test]
fn a_damaged_archive_is_reported_and_no_image_is_created() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    for name in ["a", "b"] {
        fs::write(bench.path("tree").join(name), vec![7; 3000]).unwrap();
    }
    bench.run("build all.img --from tree -q", 0);
    let tar = bench.command("export all.img").output().unwrap().stdout;
    let second = 512 + tar[512..].windows(2).position(|pair| pair == b"b\0").unwrap() / 512 * 512;
    let write = |name: &str, bytes: &[u8]| fs::write(bench.path(name), bytes).unwrap();
    let mut changed = tar.clone();
    changed[second + 3] ^= 1;
    write("changed.tar", &changed);
    write("cut.tar", &tar[..second + 1000]);
    write("words.txt", &b"hello\n".repeat(200));
    write("empty", b"");
    for (source, words) in [
        ("changed.tar", "the checksum of a header is wrong"),
        ("cut.tar", "the archive ends too early"),
        ("words.txt", "the file does not begin with a tar header"),
        ("empty", "not a tar archive: the file is empty"),
    ] {
        let said = refused(&bench, source);
        assert!(said.contains(words), "{source}: {said}");
    }
    // Between two members the archive may be truncated, or its end is not marked.
    write("short.tar", &tar[..second]);
    let (_, said) = bench.run("build -t ext2 disk.img --from short.tar -q", 0);
    assert!(
        said.contains(
            "short.tar: the mark at the end of the archive is missing, so members may be missing too"
        ),
        "{said}"
    );
    assert_eq!(bench.run("build -F -t ext2 disk.img --from tree -q", 0).1, "");
    if require(&[Oracle::Program("gzip")]) {
        write("whole.tar", &tar);
        call("gzip", [bench.path("whole.tar").as_os_str()]).unwrap();
        let packed = fs::read(bench.path("whole.tar.gz")).unwrap();
        write("cut.tar.gz", &packed[..packed.len() / 2]);
        fs::remove_file(bench.path("disk.img")).unwrap();
        refused(&bench, "cut.tar.gz");
    }
}

#[test]
fn the_claims_of_an_archive_cost_nothing_and_unsupported_members_are_named() {
    let bench = Bench::new();
    let write = |name: &str, bytes: &[u8]| fs::write(bench.path(name), bytes).unwrap();
    // A sparse file of 4 EiB without a byte.
    let sparse = archive(&[("huge", EntryType::GNUSparse, &|header| {
        let header = header.as_gnu_mut().unwrap();
        header.realsize.copy_from_slice(&[0x80, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0]);
    })]);
    write("sparse.tar", &sparse);
    let said = refused(&bench, "sparse.tar");
    assert!(said.contains("cannot use 'huge': the file is longer than the host supports"), "{said}");
    // A size that is greater than the number of bytes.
    let long = archive(&[("long", EntryType::Regular, &|header| header.set_size(1 << 60))]);
    write("long.tar", &long);
    assert!(refused(&bench, "long.tar").contains("cannot build"));
    let numbers: &dyn Fn(&mut tar::Header) = &|header| {
        header.set_device_major(1 << 20).unwrap();
        header.set_device_minor(1).unwrap();
    };
    write("device.tar", &archive(&[("device", EntryType::Char, numbers)]));
    let said = refused(&bench, "device.tar");
    assert!(said.contains("cannot store '/device': the device number cannot be stored"), "{said}");
    // Names may have any length.
    let name = "n".repeat(256);
    write("names.mtree", format!("#mtree\n./d type=dir\n./d/{name} type=file\n").as_bytes());
    let said = refused(&bench, "names.mtree");
    assert!(said.contains(&format!("cannot store '/d/{name}': the name is longer than 255 bytes")), "{said}");
    // Devices without an end are data like any other.
    let device: &dyn Fn(&mut tar::Header) = &|header| {
        header.set_device_major(8).unwrap();
        header.set_device_minor(1).unwrap();
    };
    let names: Vec<String> = (0..3000).map(|at| format!("dev/{at}")).collect();
    let devices: Vec<_> = names.iter().map(|name| (name.as_str(), EntryType::Block, device)).collect();
    write("devices.tar", &archive(&devices));
    bench.run("build disk.img --from devices.tar -q", 0);
    bench.run("check -n disk.img", 0);
}

#[test]
fn a_manifest_leads_nowhere_and_its_errors_are_reported_with_their_lines() {
    let bench = Bench::new();
    let write = |name: &str, text: &str| fs::write(bench.path(name), text).unwrap();
    write(
        "bad.mtree",
        "#mtree\n../x type=file\na type=foo\nb mode=999\nc type=block\nd type=link\ne time=x\nf contents=/dev/zero\n\
         g contents=gone\n",
    );
    let said = refused(&bench, "bad.mtree");
    for (line, words) in [
        (2, "the path contains '..', which could lead out of the image"),
        (3, "invalid keyword 'type=foo'"),
        (4, "invalid keyword 'mode=999'"),
        (5, "the line has no device number"),
        (6, "the line has no link target"),
        (7, "invalid keyword 'time=x'"),
        (8, "the contents '/dev/zero' are outside of the directory of the manifest"),
        (9, "no such file or directory"),
    ] {
        let reported = said.lines().find(|reported| reported.contains(&format!("'bad.mtree:{line}': ")));
        assert!(reported.is_some_and(|reported| reported.contains(words)), "{line}: {said}");
    }
    write("more.mtree", "#mtree\nh xattr.user.x=!!\ni uid=99999999999\nj type=file size=5\nk\\9 type=file\n");
    let said = refused(&bench, "more.mtree");
    assert!(said.contains("'more.mtree:4': the line has a size, but names no contents"), "{said}");
    assert!(said.contains("4 entries of the sources cannot be used"), "{said}");
    // The root has no parent.
    write("up.mtree", "#mtree\n..\n..\nbin type=dir uname=bin\n");
    let (_, said) = bench.run("build up.img --from up.mtree -q", 0);
    assert!(said.contains("owner names (uname, gname) without numbers are ignored"), "{said}");
    assert_eq!(bench.run("ls up.img", 0).0, "bin\nlost+found\n");
    write(
        "bad.dump",
        "junk\n/a 1 100644 1 0 0 0 0.0 - - -\n/../a 0 100644 1 0 0 0 0.0 - - -\n/a 0 @100644 1 0 0 0 0.0 /b - -\n\
         /a 0 170644 1 0 0 0 0.0 - - -\n/ 0 100644 1 0 0 0 0.0 - - -\n/a 3 100644 1 0 0 0 0.0 - ab -\n",
    );
    let said = refused(&bench, "dump:bad.dump");
    assert!(said.contains("7 entries of the sources cannot be used"), "{said}");
}

#[test]
fn text_of_a_layout_cannot_send_control_characters_to_a_terminal() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("image/blobs/sha256")).unwrap();
    fs::write(bench.path("image/oci-layout"), "{}").unwrap();
    let one = "{\"annotations\":{\"org.opencontainers.image.ref.name\":\"a\\u001b[2J\"}}";
    fs::write(bench.path("image/index.json"), format!("{{\"manifests\":[{one},{one}]}}")).unwrap();
    let said = refused(&bench, "image");
    assert!(
        said.contains("select an image with --image NAME; the names are ") && !said.contains('\x1b'),
        "{said:?}"
    );
}

#[test]
fn a_full_host_is_reported_and_left_unchanged() {
    if !require(&[Oracle::Root, Oracle::Program("mount")]) {
        return;
    }
    let bench = Bench::new();
    fs::create_dir_all(bench.path("host")).unwrap();
    fs::create_dir(bench.path("tree")).unwrap();
    for at in 0..40 {
        fs::write(bench.path("tree").join(at.to_string()), vec![at; 200_000]).unwrap();
    }
    bench.run("build all.img --from tree -q", 0);
    let tar = bench.command("export all.img").output().unwrap().stdout;
    fs::write(bench.path("all.tar"), tar).unwrap();
    let host = bench.path("host");
    let mounted = call("mount", ["-t", "tmpfs", "-o", "size=4M", "none", host.to_str().unwrap()]);
    mounted.unwrap();
    let pipe = || Stdio::from(fs::File::open(bench.path("all.tar")).unwrap());
    let said =
        ["--from tree", "--from all.tar", "--from - --size 20M", "--from tree --verify"].map(|sources| {
            let mut command = bench.command(&format!("build host/disk.img {sources}"));
            let output = command.stdin(pipe()).output().unwrap();
            (sources, output.status.code(), text(&output.stderr), fs::read_dir(&host).unwrap().count())
        });
    call("umount", [host.as_os_str()]).unwrap();
    for (sources, code, said, left) in said {
        assert_eq!((code, left), (Some(2), 0), "{sources}: {said}");
        assert!(said.contains("o space left on device") && said.contains("help: free space"), "{said}");
    }
}

#[test]
fn a_closed_summary_pipe_does_not_prevent_the_image() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    fs::write(bench.path("tree/file"), "bytes").unwrap();
    let build = bench.command("build -t ext2 disk.img --from tree");
    let mut shell = program("sh");
    shell.arg("-c").arg("\"$0\" \"$@\" | true").arg(build.get_program()).args(build.get_args());
    let output = shell.current_dir(bench.0.path()).output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(bench.run("cat disk.img:/file", 0).0, "bytes");
    assert_eq!(fs::read_dir(bench.0.path()).unwrap().count(), 2);
}

#[test]
fn a_compressed_archive_with_a_wrong_checksum_is_reported_and_no_image_is_created() {
    if !require(&[Oracle::Program("gzip")]) {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("all.tar"), archive(&[("a", EntryType::Regular, &|_| ())])).unwrap();
    call("gzip", [bench.path("all.tar").as_os_str()]).unwrap();
    bench.run("build good.img --from all.tar.gz -q", 0);
    let mut packed = fs::read(bench.path("all.tar.gz")).unwrap();
    let checksum = packed.len() - 8;
    packed[checksum] ^= 1;
    fs::write(bench.path("bad.tar.gz"), &packed).unwrap();
    fs::write(bench.path("cut.tar.gz"), &packed[..checksum]).unwrap();
    for source in ["bad.tar.gz", "cut.tar.gz"] {
        let said = refused(&bench, source);
        assert!(said.contains(source), "{said}");
        let mut import = bench.command("import good.img:/");
        let output = import.stdin(fs::File::open(bench.path(source)).unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{source}: {}", text(&output.stderr));
    }
}

#[test]
fn a_file_in_the_place_of_lost_and_found_is_named() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    fs::write(bench.path("tree/lost+found"), "bytes").unwrap();
    let said = refused(&bench, "tree");
    assert!(said.contains("'/lost+found': the format reserves the name for another directory"), "{said}");
}

#[test]
fn nothing_but_images_is_replaced() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    call("mkfifo", [bench.path("fifo").as_os_str()]).unwrap();
    for out in ["fifo", "tree"] {
        let (_, said) = bench.run(&format!("build -F {out} --from tree"), 2);
        assert!(said.contains("exists and is not a regular file"), "{said}");
    }
    assert!(!fs::metadata(bench.path("fifo")).unwrap().is_file());
}

#[test]
fn a_file_that_is_made_when_it_is_read_has_the_bytes_that_it_gives() {
    let bench = Bench::new();
    let version = fs::read_to_string("/proc/version").unwrap();
    assert_eq!(fs::metadata("/proc/version").unwrap().len(), 0);
    fs::write(bench.path("list.mtree"), "#mtree\n./said type=file contents=/proc/version\n").unwrap();
    bench.run("build disk.img --add /proc/version:/added --from list.mtree --contents /proc -q", 0);
    bench.run("cp /proc/version disk.img:/copied", 0);
    for name in ["added", "said", "copied"] {
        assert_eq!(bench.run(&format!("cat disk.img:/{name}"), 0).0, version, "{name}");
    }
    // The file has no bytes at its start.
    let (_, said) =
        bench.run("build endless.img --add /proc/self/mem:/m --from list.mtree --contents /proc", 2);
    assert!(said.contains("cannot use '/proc/self/mem': input/output error"), "{said}");
}

#[test]
fn a_number_that_no_owner_has_is_not_mapped() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    for map in ["0:4294967295", "4294967295:0", "0:4294967290:6"] {
        let (_, said) = bench.run(&format!("build disk.img --from tree --map-uid {map}"), 2);
        assert!(
            said.contains("for --map-uid\n  help: write a value such as 1000:0 or 0:100000:65536"),
            "{said}"
        );
    }
    bench.run("build disk.img --from tree -q --map-uid 0:4294967294", 0);
}
