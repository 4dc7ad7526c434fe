//! Wrong command lines: each message names the word at fault as it was typed, and the word to use.

use std::fs;
use std::path::Path;

use super::{check_in, folder_of_images, obento};

#[track_caller]
fn fails(folder: &Path, line: &str, status: i32, stderr: &str) {
    let args: Vec<&str> = line.split(' ').collect();
    check_in(folder, &args, status, "", &format!("obento: {stderr}\n"));
}

/// Checks the beginning of standard error, of which the rest is a list.
#[track_caller]
fn fails_with(folder: &Path, line: &str, status: i32, beginning: &str) {
    let output = obento(folder, &line.split(' ').collect::<Vec<_>>());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.starts_with(&format!("obento: {beginning}")), "{line}: {stderr}");
    assert_eq!(output.status.code(), Some(status), "{line}");
}

#[test]
fn a_word_that_is_no_command_is_reported_with_the_command_that_the_user_means() {
    let folder = folder_of_images();
    let list = "'obento help' lists the commands";
    for (word, meant) in [
        ("unmount", "umount"),
        ("delete", "rm"),
        ("copy", "cp"),
        ("move", "mv"),
        ("format", "mkfs"),
        ("fsck.vfat", "check"),
        ("repair", "check -y"),
        ("extract", "cp -a"),
        ("mkfs.ext4", "mkfs -t ext4"),
        ("completion", "completions"),
        ("partitions", "part"),
    ] {
        let help = format!("unknown command '{word}'\n  help: did you mean '{meant}'? {list}");
        fails(folder.path(), word, 2, &help);
    }
    for word in ["exit", "frobnicate"] {
        fails(folder.path(), word, 2, &format!("unknown command '{word}'\n  help: {list}"));
    }
    for line in ["plain.img ls", "plain.img:/etc cat"] {
        let image = line.split(' ').next().unwrap();
        let help = format!("the command comes before the image: obento ls {image}");
        fails(folder.path(), line, 2, &format!("unknown command '{image}'\n  help: {help}"));
    }
}

#[test]
fn a_format_that_obento_does_not_write_is_no_misspelt_name_of_another() {
    let folder = folder_of_images();
    let at = folder.path();
    fs::create_dir(at.join("dir")).unwrap();
    let formats = "raw, qcow2, vhd, vmdk, vdi, android-sparse, gz, xz";
    fails(
        at,
        "convert -O vhdx plain.img x",
        2,
        &format!("-O (--format): obento does not write vhdx images\n  help: use {formats} or zst"),
    );
    fails(
        at,
        "completions csh",
        2,
        "invalid value 'csh' for SHELL\n  help: use bash, elvish, fish, powershell or zsh",
    );
    let name = format!("use a name such as disk.qcow2, or --format {formats} or zst");
    for (line, cannot) in [("convert plain.img x.vhdx", "convert to"), ("build x.vhdx --from dir", "build")] {
        fails(
            at,
            line,
            2,
            &format!("cannot {cannot} 'x.vhdx': obento does not write vhdx images\n  help: {name}"),
        );
    }
    fails_with(
        at,
        "convert plain.img x.img.bz2",
        2,
        "cannot convert to 'x.img.bz2': obento does not write bz2 images",
    );
    fails_with(
        at,
        "convert plain.img x.what",
        2,
        "cannot convert to 'x.what': the extension 'what' selects no format",
    );
    fails(
        at,
        "convert plain.img dir",
        2,
        "cannot convert to 'dir': is a directory\n  help: name a file, such as disk.qcow2",
    );
    fails(
        at,
        "convert plain.img gone.img@1",
        2,
        "cannot convert to 'gone.img@1': no such file 'gone.img'\n  help: create the disk first: obento part gone.img \
         create gpt --size SIZE",
    );
}

#[test]
fn an_option_is_named_by_the_letter_that_was_typed() {
    let folder = folder_of_images();
    let at = folder.path();
    for (line, status, stderr) in [
        ("check -p -y plain.img", 16, "-p (--safe) cannot be used with -y (--yes)\n"),
        ("check --safe -y plain.img", 16, "--safe cannot be used with -y (--yes)\n"),
        ("stat plain.img:/ -c", 2, "-c (--format) requires a value\n"),
        ("tune plain.img -L", 2, "-L (--label) requires a value\n"),
        ("hexdump -n 5z plain.img", 2, "invalid value '5z' for -n (--length)"),
        ("truncate -s 10X plain.img:/f", 2, "invalid value '10X' for -s (--size)"),
        ("tree -L x plain.img", 2, "invalid value 'x' for -L (--level): not a whole number\n"),
        ("tree --level x plain.img", 2, "invalid value 'x' for --level: not a whole number\n"),
        ("head -n x plain.img:/f", 2, "invalid value 'x' for -n\n"),
        ("tail -c 10Q plain.img:/f", 2, "invalid value '10Q' for -c\n"),
        (
            "build n.img --disk f --from dir",
            2,
            "--disk cannot be used with --from\n  help: write 'from = ...' in the layout; 'obento help layout' describes \
             the keys\n",
        ),
        (
            "build n.img --disk f -t vfat",
            2,
            "--disk cannot be used with -t (--type)\n  help: write 'content = ...' in the layout;",
        ),
    ] {
        fails_with(at, line, status, stderr);
    }
}

#[test]
fn a_directory_that_would_be_moved_into_itself_is_reported_as_such_on_each_type() {
    let folder = folder_of_images();
    for image in ["plain.img", "fat.img"] {
        check_in(folder.path(), &["mkdir", "-p", &format!("{image}:/2025/may")], 0, "", "");
        for target in ["2025/x", "2025/may/x", "2025/may"] {
            let shown = if target.ends_with("may") { "2025/may/2025" } else { target };
            fails(
                folder.path(),
                &format!("mv {image}:/2025 {image}:/{target}"),
                1,
                &format!(
                    "cannot move '{image}:/2025' to '{image}:/{shown}': a directory cannot be moved into itself"
                ),
            );
        }
    }
}

#[test]
fn a_file_of_the_wrong_kind_is_named_with_the_file_to_use() {
    let folder = folder_of_images();
    let at = folder.path();
    fs::write(at.join("bytes"), [0xff; 100]).unwrap();
    fs::write(at.join("layout.toml"), "[[partition]]\ntype = \"esp\"\ncontents = \"vfat\"\n").unwrap();
    for (line, status, stderr) in [
        (
            "recover --map bytes plain.img out",
            2,
            "cannot use the map 'bytes': not a text file\n  help: name the map file that ddrescue wrote: ddrescue DISK \
             IMAGE MAPFILE",
        ),
        (
            "build x.img --disk bytes",
            2,
            "cannot use the layout 'bytes': not a text file\n  help: name a layout in TOML; 'obento build \
             --print-layout DISK' prints that of a disk",
        ),
        (
            "build x.img --disk layout.toml",
            2,
            "cannot use 'layout.toml:3': contents: this key names the directory of a manifest; the type of the file \
             system is 'content'\n  help: did you mean 'content'?",
        ),
        (
            "import notes.txt plain.img:/",
            2,
            "cannot import into 'notes.txt': not a path inside an image\n  help: the image comes first: obento import \
             plain.img:/ notes.txt",
        ),
    ] {
        fails(at, line, status, stderr);
    }
}

#[test]
fn a_container_image_is_told_from_an_archive_of_files() {
    let folder = folder_of_images();
    let at = folder.path();
    fs::create_dir(at.join("dir")).unwrap();
    fs::write(at.join("dir/f"), "text").unwrap();
    let header = |name: &str, body: &[u8]| {
        let mut bytes = vec![0; 512];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[100..108].copy_from_slice(b"0000644\0");
        bytes[124..136].copy_from_slice(format!("{:011o}\0", body.len()).as_bytes());
        bytes[156] = b'0';
        bytes[257..265].copy_from_slice(b"ustar\x0000");
        bytes[148..156].fill(b' ');
        let sum: u32 = bytes.iter().map(|&byte| u32::from(byte)).sum();
        bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    };
    let end = vec![0; 1024];
    let saved = [header("0123/layer.tar", b"x"), header("manifest.json", b"[]"), end.clone()].concat();
    let oci = [header("oci-layout", b"{}"), header("index.json", b"{}"), end.clone()].concat();
    for (name, bytes) in [("app.tar", saved), ("oci.tar", oci)] {
        fs::write(at.join(name), bytes).unwrap();
        let note = format!(
            "obento: {name}: note: this container image is stored as an archive of layers; use oci:{name} to store the \
             files of the image\n"
        );
        check_in(at, &["build", "-q", "-F", "--size", "8M", "n.img", "--from", name], 0, "", &note);
        check_in(
            at,
            &["build", "-q", "-F", "--size", "8M", "n.img", "--from", &format!("tar:{name}")],
            0,
            "",
            "",
        );
    }
    fs::write(at.join("a.tar"), [header("manifest.json.old", b"[]"), end].concat()).unwrap();
    check_in(at, &["build", "-q", "-F", "--size", "8M", "n.img", "--from", "a.tar"], 0, "", "");
    for source in ["a.tar", "dir"] {
        fails(
            at,
            &format!("build -q -F n.img --from oci:{source}"),
            2,
            &format!(
                "cannot build 'n.img': cannot read '{source}': neither an OCI layout nor an output of docker save\n  \
                 help: omit 'oci:' to store the directory, or the files of the archive"
            ),
        );
    }
}

#[test]
fn checksums_below_a_directory_twice_are_reported_with_the_root_to_use() {
    let folder = folder_of_images();
    let at = folder.path();
    for image in ["plain.img", "fat.img"] {
        check_in(at, &["mkdir", &format!("{image}:/etc")], 0, "", "");
        check_in(at, &["cp", "notes.txt", &format!("{image}:/etc/")], 0, "", "");
    }
    let sums = obento(at, &["sha256sum", "-r", "plain.img:/etc"]).stdout;
    fs::write(at.join("sums"), sums).unwrap();
    let help = "obento: sums: no file was found\n  help: the names in the list start at the root directory: use --root \
                fat.img\n";
    let output = obento(at, &["sha256sum", "-c", "sums", "--root", "fat.img:/etc"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.ends_with(help) && output.status.code() == Some(1), "{stderr}");
    let output = obento(at, &["sha256sum", "-c", "sums", "--root", "fat.img"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_partition_of_an_mbr_has_no_name_and_no_uuid() {
    let folder = folder_of_images();
    let at = folder.path();
    assert!(obento(at, &["part", "mbr.img", "add"]).status.success());
    let cannot = "cannot change the partition table of 'mbr.img': a partition of an MBR has no";
    fails(
        at,
        "part mbr.img uuid 1 random",
        2,
        &format!("{cannot} UUID\n  help: only the disk has a number: obento part mbr.img uuid disk random"),
    );
    fails(
        at,
        "part mbr.img name 1 foo",
        2,
        &format!(
            "{cannot} name\n  help: set the label of its file system instead: obento tune mbr.img@1 -L foo"
        ),
    );
    // Its contents are described, and nothing is wrong.
    for (image, words) in [("mbr.img", "partition table"), ("notes.txt", "text")] {
        let output = obento(at, &["info", image]);
        assert_eq!((String::from_utf8_lossy(&output.stderr), output.status.code()), ("".into(), Some(0)));
        assert!(String::from_utf8_lossy(&output.stdout).contains(words), "{output:?}");
    }
}

#[test]
fn a_move_to_a_full_volume_names_the_file_and_not_its_temporary_name() {
    let folder = folder_of_images();
    let at = folder.path();
    fs::File::create(at.join("big")).unwrap().set_len(16 << 20).unwrap();
    fs::write(at.join("big"), vec![1; 16 << 20]).unwrap();
    let output = obento(at, &["mv", "big", "fat.img:/"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("'fat.img:/big'") && !stderr.contains(".obento-unfinished"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
    assert!(at.join("big").exists());
}

#[test]
fn an_erase_block_takes_the_units_of_other_sizes() {
    let folder = folder_of_images();
    fs::create_dir(folder.path().join("dir")).unwrap();
    for size in ["64k", "64K", "64KiB"] {
        let args = [
            "build",
            "-q",
            "-F",
            "-t",
            "jffs2",
            "j.img",
            "--from",
            "dir",
            "-E",
            &format!("eraseblock={size}"),
        ];
        check_in(folder.path(), &args, 0, "", "");
    }
}
