//! Damaged images: every command ends with a result or a clear error, in bounded time and memory.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use obento_testkit::oracle::{self, Oracle, program, run};
use obento_testkit::scratch::memory_folder;
use obento_testkit::{mutants, require};

/// The limit of processor time in seconds, which no damaged image of a few MiB may exceed.
const PROCESSOR_SECONDS: u64 = 20;
/// The number of seconds after which a command counts as hung. It is large, because a copy of 47,000 files waits for
/// the journal of a busy host.
const HANG_SECONDS: &str = "240";
/// The address space of a command in KiB: its memory budget, its stacks and its code.
const MEMORY_KIB: u64 = 512 * 1024;

/// Every command that reads an image, with placeholders for the image and an output folder.
const READERS: &[&[&str]] = &[
    &["ls", "-laRis", "IMAGE"],
    &["find", "IMAGE", "-printf", "%p %s %i\\n"],
    &["export", "IMAGE", "-o", "OUT/tree.tar"],
    &["cp", "-a", "--untrusted", "--max-bytes", "200M", "IMAGE:/", "OUT/tree/"],
    &["du", "-a", "IMAGE"],
    &["df", "IMAGE"],
    &["info", "IMAGE"],
    &["inspect", "super", "IMAGE"],
    &["inspect", "journal", "IMAGE"],
    &["ls", "--no-replay", "-lR", "IMAGE"],
];

/// Runs obento with `arguments` and these limits. Panics if a limit is exceeded or a signal ends the process.
fn read(image: &Path, arguments: &[&str], what: &str) -> ExitStatus {
    // The limit of processor time contains the time of the host's kernel. Its ext4 searches long for an inode of which
    // none was deleted in the last seconds, and earlier commands of this test deleted many thousands.
    let out = tempfile::tempdir_in(memory_folder()).unwrap();
    let place = |argument: &str| {
        argument.replace("IMAGE", image.to_str().unwrap()).replace("OUT", out.path().to_str().unwrap())
    };
    let mut command = Command::new("timeout");
    command.args([
        HANG_SECONDS,
        "sh",
        "-c",
        &format!("ulimit -v {MEMORY_KIB}; ulimit -t {PROCESSOR_SECONDS}; exec \"$0\" \"$@\""),
    ]);
    command.arg(env!("CARGO_BIN_EXE_obento")).args(arguments.iter().map(|argument| place(argument)));
    let log = tempfile::NamedTempFile::new().unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.reopen().unwrap());
    let status = command.status().unwrap();
    let messages = String::from_utf8_lossy(&fs::read(log.path()).unwrap()).into_owned();
    assert!(status.code() != Some(124), "{what}: {arguments:?} hung for {HANG_SECONDS} s:\n{messages}");
    let signal = status.code().filter(|code| *code > 128);
    assert!(
        signal.is_none() && status.signal().is_none(),
        "{what}: {arguments:?} died of {status}:\n{messages}"
    );
    assert!(!messages.contains("panicked"), "{what}: {arguments:?} panicked:\n{messages}");
    assert!(matches!(status.code(), Some(0..=2)), "{what}: {arguments:?} exited with {status}:\n{messages}");
    assert!(status.success() || !messages.is_empty(), "{what}: {arguments:?} failed without a word");
    status
}

fn unzip(packed: &Path, folder: &Path) -> PathBuf {
    let image = folder.join("image");
    run(program("gzip").arg("-dc").arg(packed).stdout(fs::File::create(&image).unwrap())).unwrap();
    image
}

#[test]
fn every_image_of_the_corpus_is_read_to_its_end_or_refused() {
    if !require(&[Oracle::Corpus, Oracle::Program("gzip")]) {
        return;
    }
    let folder = oracle::corpus().unwrap();
    let mut images: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    images.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    images.sort();
    assert!(images.len() > 50, "{} images", images.len());
    for packed in images {
        let folder = tempfile::tempdir().unwrap();
        let image = unzip(&packed, folder.path());
        for reader in READERS {
            read(&image, reader, &packed.display().to_string());
        }
    }
}

#[test]
fn mutants_of_the_sample_are_read_to_their_end_or_refused() {
    if !require(&[Oracle::Program("zstd")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/disk.img.zst"));
    let image = mutants::unpack(sample, folder.path()).unwrap();
    let original = fs::read(&image).unwrap();
    let damaged = folder.path().join("damaged.img");
    for seed in 0..60 {
        mutants::write(&original, seed, &damaged).unwrap();
        let readers = READERS.iter().skip(usize::try_from(seed).unwrap() % 3).step_by(3);
        for reader in readers {
            read(&damaged, reader, &format!("mutant {seed}"));
        }
    }
}

#[test]
fn a_truncated_image_is_read_up_to_its_end() {
    if !require(&[Oracle::Program("zstd")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/disk.img.zst"));
    let image = mutants::unpack(sample, folder.path()).unwrap();
    let original = fs::read(&image).unwrap();
    for len in [0, 1, 511, 512, 1024, 1 << 20, (1 << 20) + 1500, 2 << 20, 5 << 20, 15 << 20] {
        let cut = folder.path().join("cut.img");
        fs::write(&cut, &original[..len]).unwrap();
        for reader in READERS {
            let status = read(&cut, reader, &format!("cut at {len}"));
            // `info` describes the partition table.
            let is_described = reader[0] == "info" && len == 1 << 20;
            assert!(len > 1 << 20 || !status.success() || is_described, "an image cut at {len} was read");
        }
    }
}

/// Creates an ext4 image with a chain of `levels` directories, of which each has two names, `a` and `b`. The last one
/// contains a file that cannot be removed.
fn image_with_two_names_for_each_directory(levels: usize, folder: &Path) -> PathBuf {
    let image = folder.join("image");
    fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    run(program("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", "^metadata_csum"]).arg(&image)).unwrap();
    let mut script: Vec<_> = (0..=levels).map(|level| format!("mkdir d{level}")).collect();
    script.push(format!("write /dev/null d{levels}/leaf"));
    script.push(format!("sif d{levels}/leaf flags 0x80010"));
    for level in 0..levels {
        script.extend(["a", "b"].map(|name| format!("ln d{} d{level}/{name}", level + 1)));
    }
    script.extend((1..=levels).map(|level| format!("unlink d{level}")));
    let commands = folder.join("commands");
    fs::write(&commands, script.join("\n")).unwrap();
    run(program("debugfs").args(["-w", "-f"]).arg(&commands).arg(&image)).unwrap();
    image
}

#[test]
fn directories_with_two_names_each_are_entered_once() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Entering each name would take 2^40 visits.
    let image = image_with_two_names_for_each_directory(40, folder.path());
    let original = fs::read(&image).unwrap();
    let others: &[&[&str]] = &[
        &["rm", "-rf", "IMAGE:/d0"],
        &["mv", "IMAGE:/d0", "OUT"],
        &["chmod", "-R", "700", "IMAGE:/d0"],
        &["chown", "-R", "1", "IMAGE:/d0"],
        &["tree", "IMAGE:/"],
        &["sha256sum", "-r", "IMAGE:/"],
        &["grep", "-r", "x", "IMAGE:/"],
    ];
    for arguments in READERS.iter().chain(others) {
        fs::write(&image, &original).unwrap();
        read(&image, arguments, "directories with two names");
    }
}

/// Creates an ext4 image whose directory `full` has 39 names in a block with a wrong checksum. Returns its path and the
/// number of that block.
fn image_with_a_wrong_checksum(folder: &Path) -> (PathBuf, u64) {
    let (tree, image) = (folder.join("tree"), folder.join("image"));
    fs::create_dir_all(tree.join("full")).unwrap();
    for n in 0..39 {
        fs::write(tree.join(format!("full/name-{n}")), format!("contents {n}\n")).unwrap();
    }
    fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let mut mke2fs = program("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "metadata_csum,^has_journal", "-d"]);
    run(mke2fs.arg(&tree).arg(&image)).unwrap();
    let blocks = run(program("debugfs").args(["-R", "blocks /full"]).arg(&image)).unwrap().stdout;
    let block: u64 = String::from_utf8_lossy(&blocks).trim().parse().unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 4], block * 4096 + 4092).unwrap();
    (image, block)
}

/// Runs obento; returns its exit code, standard output and standard error.
fn obento(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_obento")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn reading_a_directory_block_with_a_wrong_checksum_shows_its_names_and_ends_with_exit_code_1() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, block) = image_with_a_wrong_checksum(folder.path());
    let image = image.to_str().unwrap();
    let (place, name) = (format!("{image}:/full"), format!("{image}:/full/name-7"));
    let copy = folder.path().join("copy");
    let tar = folder.path().join("out.tar");
    let readers: &[&[&str]] = &[
        &["ls", &place],
        &["find", &place],
        &["cat", &name],
        &["cp", "-r", &place, copy.to_str().unwrap()],
        &["export", image, "-o", tar.to_str().unwrap()],
    ];
    for arguments in readers {
        let (code, _, report) = obento(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {report}");
        assert!(report.contains(&format!("block {block}")), "{arguments:?}: {report}");
        let lines = report.lines().filter(|line| line.contains("checksum")).count();
        assert_eq!(lines, 1, "{arguments:?}: {report}");
    }
    assert_eq!(obento(&["ls", &place]).1.lines().count(), 39);
    assert_eq!(obento(&["cat", &name]).1, "contents 7\n");
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 39);
    let listed = run(program("tar").arg("tf").arg(&tar)).unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&listed).lines().filter(|line| line.contains("name-")).count(), 39);
}

#[test]
fn files_named_in_a_damaged_directory_block_are_changed_and_its_names_are_not() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, block) = image_with_a_wrong_checksum(folder.path());
    let image = image.to_str().unwrap();
    let (place, name) = (format!("{image}:/full"), format!("{image}:/full/name-7"));
    let (new, outside) = (format!("{image}:/full/new"), format!("{image}:/link"));
    assert_eq!(obento(&["touch", &format!("{image}:/other")]).0, Some(0));
    // Each change is done, and the damage is reported.
    let changes: &[&[&str]] = &[
        &["chmod", "604", &name],
        &["chown", "12:34", &name],
        &["touch", "-d", "@1000000000", &name],
        &["setfattr", "-n", "user.key", "-v", "value", &name],
        &["ln", &name, &outside],
    ];
    for arguments in changes {
        let (code, _, report) = obento(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {report}");
        assert!(report.contains("found damage in") && report.contains(&format!("block {block}")), "{report}");
    }
    let line = obento(&["stat", "-c", "%a %u %g %Y %h", &outside]).1;
    assert_eq!(line, "604 12 34 1000000000 2\n");
    assert!(obento(&["getfattr", "-n", "user.key", &outside]).1.contains("\"value\""));
    // A change of a name in the block would store a correct checksum of damaged bytes.
    let refused: &[&[&str]] = &[
        &["rm", &name],
        &["touch", &new],
        &["mkdir", &new],
        &["mv", &outside, &new],
        &["mv", &name, &format!("{image}:/moved")],
    ];
    for arguments in refused {
        let (code, _, report) = obento(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {report}");
        assert!(report.contains("cannot ") && report.contains(&format!("block {block}")), "{report}");
    }
    assert_eq!(obento(&["chmod", "-R", "600", &place]).0, Some(1));
    assert_eq!(obento(&["stat", "-c", "%a", &outside]).1, "600\n");
    // Other directories do not matter.
    assert_eq!(obento(&["rm", &format!("{image}:/other"), &outside]).0, Some(0));
    assert_eq!(obento(&["ls", &place]).1.lines().count(), 39);
    assert_eq!(obento(&["check", "-y", image]).0, Some(1));
    assert_eq!(obento(&["rm", &name]).0, Some(0));
    run(program("e2fsck").arg("-fn").arg(image)).unwrap();
}

#[test]
fn ignored_checksums_are_not_reported_and_forbid_changes() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, _) = image_with_a_wrong_checksum(folder.path());
    let image = image.to_str().unwrap();
    let (place, name) = (format!("{image}:/full"), format!("{image}:/full/name-7"));
    let (code, names, report) = obento(&["ls", "--ignore-checksums", &place]);
    assert_eq!((code, names.lines().count(), report.as_str()), (Some(0), 39, ""));
    for arguments in [&["rm", &name][..], &["rm", "--ignore-checksums", &name]] {
        let (code, _, report) = obento(arguments);
        assert!(code > Some(0), "{arguments:?}: {report}");
    }
    assert_eq!(obento(&["ls", "--ignore-checksums", &place]).1, names);
}

#[test]
fn check_refuses_to_ignore_checksums_and_writes_nothing() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, _) = image_with_a_wrong_checksum(folder.path());
    let before = fs::read(&image).unwrap();
    let image = image.to_str().unwrap();
    for arguments in
        [&["check", "--ignore-checksums", image][..], &["check", "-y", "--ignore-checksums", image]]
    {
        let (code, _, report) = obento(arguments);
        assert_eq!(code, Some(16), "{arguments:?}: {report}");
        assert!(report.contains("--ignore-checksums is for reading only"), "{report}");
    }
    assert!(fs::read(image).unwrap() == before);
}

#[test]
fn diff_of_a_file_whose_name_is_in_a_damaged_block_ends_with_exit_code_2() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, block) = image_with_a_wrong_checksum(folder.path());
    let name = format!("{}:/full/name-7", image.display());
    let same = folder.path().join("tree/full/name-7");
    let (code, differences, report) = obento(&["diff", &name, same.to_str().unwrap()]);
    assert_eq!((code, differences.as_str()), (Some(2), ""));
    assert!(report.contains(&format!("block {block}")), "{report}");
}

/// The programs that pack, and the distance from the end of their files to a byte of the last checksum.
const PACKERS: [(&str, u64); 4] = [("gzip", 8), ("bzip2", 3), ("xz", 12), ("zstd", 2)];

/// Packs `file` with `packer` and changes one byte of a checksum: all bytes are unpacked, and nothing proves them.
fn packed_with_a_wrong_checksum(file: &Path, (packer, from_end): (&'static str, u64)) -> PathBuf {
    let packed = file.with_extension(packer);
    run(program(packer).arg("-c").arg(file).stdout(fs::File::create(&packed).unwrap())).unwrap();
    let mut bytes = fs::read(&packed).unwrap();
    let at = bytes.len() - usize::try_from(from_end).unwrap();
    bytes[at] ^= 1;
    fs::write(&packed, bytes).unwrap();
    packed
}

/// Converts `file` to an Android sparse image, whose header then contains a wrong checksum.
fn sparse_with_a_wrong_checksum(file: &Path) -> PathBuf {
    let sparse = file.with_extension("simg");
    let (code, _, errors) =
        obento(&["convert", "-O", "android-sparse", file.to_str().unwrap(), sparse.to_str().unwrap()]);
    assert_eq!((code, &*errors), (Some(0), ""));
    let mut bytes = fs::read(&sparse).unwrap();
    bytes[24..28].copy_from_slice(&[1, 2, 3, 4]);
    fs::write(&sparse, bytes).unwrap();
    sparse
}

#[test]
fn every_command_that_reads_a_packed_image_with_a_wrong_checksum_reports_it_and_fails() {
    let packers = PACKERS.map(|(packer, _)| Oracle::Program(packer));
    if !require(&packers) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/disk.img.zst"));
    let image = mutants::unpack(sample, folder.path()).unwrap();
    let passwd = folder.path().join("passwd");
    let (code, text, _) = obento(&["cat", &format!("{}:/etc/passwd", image.display())]);
    assert_eq!(code, Some(0));
    fs::write(&passwd, text).unwrap();
    let same = passwd.to_str().unwrap();
    let (sound, sound_file) = (image.display().to_string(), format!("{}:/etc/passwd", image.display()));
    let commands: &[(&[&str], i32)] = &[
        (&["cat", "IMAGE:/etc/passwd"], 1),
        (&["head", "-n", "1", "IMAGE:/etc/passwd"], 1),
        (&["tail", "-n", "1", "IMAGE:/etc/passwd"], 1),
        (&["wc", "IMAGE:/etc/passwd"], 1),
        (&["file", "IMAGE:/etc/passwd"], 1),
        (&["hexdump", "IMAGE:/etc/passwd"], 1),
        (&["cp", "IMAGE:/etc/passwd", "OUT/file"], 1),
        (&["cp", "-r", "IMAGE:/etc", "OUT/tree"], 1),
        (&["export", "IMAGE", "-o", "OUT/tree.tar"], 1),
        (&["recover", "IMAGE", "OUT/recovered"], 1),
        (&["undelete", "IMAGE"], 1),
        (&["ls", "-l", "IMAGE:/etc"], 1),
        (&["tree", "IMAGE:/etc"], 1),
        (&["stat", "IMAGE:/etc/passwd"], 1),
        (&["find", "IMAGE:/etc"], 1),
        (&["du", "IMAGE:/etc"], 1),
        (&["df", "IMAGE"], 1),
        (&["info", "IMAGE"], 1),
        (&["inspect", "super", "IMAGE"], 1),
        (&["readlink", "-f", "IMAGE:/etc/passwd"], 1),
        (&["getfattr", "IMAGE:/etc/passwd"], 1),
        (&["getfacl", "IMAGE:/etc/passwd"], 1),
        (&["lsattr", "IMAGE:/etc/passwd"], 1),
        (&["sha256sum", "IMAGE:/etc/passwd"], 1),
        (&["shell", "-c", "cat /etc/passwd", "IMAGE"], 1),
        (&["cp", "IMAGE:/etc/passwd", "SOUND:/copy"], 1),
        (&["diff", "IMAGE:/etc/passwd", "SAME"], 2),
        (&["diff", "-r", "IMAGE", "SOUND"], 2),
        (&["diff", "--bytes", "IMAGE", "SOUND"], 2),
        (&["cmp", "IMAGE:/etc/passwd", "SOUND_FILE"], 2),
        (&["grep", "root", "IMAGE:/etc/passwd"], 2),
        (&["check", "IMAGE"], 8),
        (&["convert", "IMAGE", "OUT/plain.img"], 2),
        (&["mount", "IMAGE", "OUT"], 1),
    ];
    let mut images: Vec<_> = PACKERS
        .iter()
        .map(|&packer| {
            (packed_with_a_wrong_checksum(&image, packer), format!("{} data is damaged", packer.0))
        })
        .collect();
    let reported = "the checksum of the android-sparse data is wrong".to_owned();
    images.push((sparse_with_a_wrong_checksum(&image), reported));
    for (packed, reported) in images {
        let is_sparse = packed.extension().is_some_and(|extension| extension == "simg");
        // A checksum of the whole disk is verified by the commands that read all of it.
        let reads_all =
            |arguments: &[&str]| matches!(arguments[0], "check" | "convert" | "export" | "recover");
        for (arguments, expected) in commands.iter().filter(|(words, _)| !is_sparse || reads_all(words)) {
            let out = tempfile::tempdir().unwrap();
            let place = |argument: &&str| {
                let argument = argument.replace("SOUND_FILE", &sound_file).replace("SOUND", &sound);
                let argument = argument.replace("IMAGE", packed.to_str().unwrap()).replace("SAME", same);
                argument.replace("OUT", out.path().to_str().unwrap())
            };
            let words: Vec<String> = arguments.iter().map(place).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (code, _, errors) = obento(&words);
            assert_eq!(code, Some(*expected), "{words:?}: {errors}");
            assert!(errors.contains(&reported), "{words:?}: {errors}");
        }
    }
}

#[test]
fn commands_that_read_single_files_do_not_read_a_sparse_image_for_its_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/disk.img.zst"));
    let image = mutants::unpack(sample, folder.path()).unwrap();
    let sparse = sparse_with_a_wrong_checksum(&image);
    let passwd = |image: &Path| obento(&["cat", &format!("{}:/etc/passwd", image.display())]);
    assert_eq!(passwd(&sparse), passwd(&image));
    assert_eq!(passwd(&sparse).0, Some(0));
}

#[test]
fn a_packed_image_with_unknown_data_after_it_is_read_and_converted_with_a_note() {
    if !require(&PACKERS.map(|(packer, _)| Oracle::Program(packer))) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/disk.img.zst"));
    let image = mutants::unpack(sample, folder.path()).unwrap();
    let place = format!("{}:/etc/passwd", image.display());
    let (_, contents, _) = obento(&["cat", &place]);
    for (packer, _) in PACKERS {
        let packed = image.with_extension(packer);
        run(program(packer).arg("-c").arg(&image).stdout(fs::File::create(&packed).unwrap())).unwrap();
        let sound = fs::read(&packed).unwrap();
        fs::write(&packed, [&sound[..], b"{ \"metadata_version\": \"1.1\" }FWx0"].concat()).unwrap();
        let shown = packed.to_str().unwrap();
        let reported = format!("obento: {shown}: note: unknown data follows the compressed data\n");
        assert_eq!(
            obento(&["cat", &format!("{shown}:/etc/passwd")]),
            (Some(0), contents.clone(), reported.clone())
        );
        let plain = folder.path().join(format!("{packer}-plain.img"));
        let (code, _, errors) = obento(&["convert", shown, plain.to_str().unwrap()]);
        assert_eq!((code, errors), (Some(0), reported), "{packer}");
        assert!(fs::read(&plain).unwrap() == fs::read(&image).unwrap(), "{packer}");
    }
}

#[test]
fn a_host_file_is_copied_into_an_image_although_it_is_a_damaged_packed_file() {
    if !require(&PACKERS.map(|(packer, _)| Oracle::Program(packer))) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/disk.img.zst"));
    let image = mutants::unpack(sample, folder.path()).unwrap();
    let packed = packed_with_a_wrong_checksum(&image, PACKERS[0]);
    let target = format!("{}:/copy", image.display());
    assert_eq!(obento(&["cp", packed.to_str().unwrap(), &target]), (Some(0), String::new(), String::new()));
}

#[test]
fn an_archive_whose_packed_stream_has_a_wrong_checksum_is_reported() {
    if !require(&PACKERS.map(|(packer, _)| Oracle::Program(packer))) || !require(&[Oracle::Program("tar")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("file"), "contents\n").unwrap();
    run(program("tar").args(["-C", folder.path().to_str().unwrap(), "-cf", &path("a.tar"), "file"])).unwrap();
    let (image, built) = (path("new.img"), path("built.img"));
    for packer in PACKERS {
        let packed = packed_with_a_wrong_checksum(Path::new(&path("a.tar")), packer);
        let packed = packed.to_str().unwrap();
        assert_eq!(obento(&["mkfs", "-t", "ext4", "--force", &image, "8M"]).0, Some(0));
        let (code, _, errors) = obento(&["import", &format!("{image}:/"), packed]);
        assert_eq!(code, Some(2), "{packed}: {errors}");
        assert!(errors.contains("cannot read"), "{packed}: {errors}");
        let (code, _, errors) = obento(&["build", &built, "--size", "8M", "--from", packed]);
        assert!(code != Some(0) && !errors.is_empty(), "{packed}: {code:?} {errors}");
        assert!(!Path::new(&built).exists(), "{packed}");
    }
}
