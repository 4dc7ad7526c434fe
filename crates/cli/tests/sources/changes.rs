//! Commands that change the files of a server.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use obento_testkit::oracle::{program, run};

/// The exit code, the output and the messages of a command.
pub type Ended = (Option<i32>, String, String);

/// Runs commands on the server, whose files are in `tree` of `folder`, and the programs of the host of the same names on
/// a copy. Compares the results. `run` replaces `@` by the address of the server.
pub fn changes_are_those_of_the_host(folder: &Path, run_ours: impl Fn(&[&str]) -> Ended) {
    let prints = |arguments: &[&str], expected: &str| {
        assert_eq!(run_ours(arguments), (Some(0), expected.to_owned(), String::new()), "{arguments:?}");
    };
    run(program("cp").args(["-a", "tree", "host"]).current_dir(folder)).unwrap();
    fs::create_dir_all(folder.join("more/sub")).unwrap();
    fs::write(folder.join("more/text"), "text\n").unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_be_bytes).collect();
    fs::write(folder.join("more/sub/large"), &large).unwrap();
    for line in [
        "mkdir @/new",
        "mkdir -p @/a/b/c",
        "cp -a more @/copied",
        "cp more/text @/dir/file",
        "mv @/dir/deep @/moved",
        "mv @/copied/text @/dir/file",
        "ln @/dir/file @/hard",
        "ln -s target @/symbolic",
        "chmod 4711 @/hard",
        "chown 12:34 @/new",
        "touch -d 2001-02-03T04:05:06Z @/hard",
        "touch @/touched",
        "truncate -s 100000 @/moved/large",
        "mknod @/device c 5 6",
        "mknod @/pipe p",
        "rm @/link",
        "rm -r @/a",
        "rmdir @/new",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let host: Vec<String> = words.iter().map(|word| word.replace('@', "host")).collect();
        run(program(&host[0]).args(&host[1..]).current_dir(folder)).unwrap();
        let ours: Vec<String> = words.iter().map(|word| word.replace("@/", "@:/")).collect();
        prints(&ours.iter().map(String::as_str).collect::<Vec<_>>(), "");
    }
    // The times of files that the lines do not name differ.
    let list = r"find . -printf '%P %y %m %U %G %s %n %l %T@\n' | grep -v '^touched' | LC_ALL=C sort | \
        sed -E '/^(hard|dir.file|copied.sub.large) /!s/ [0-9.]+$//; s/^(.* d [0-9]+ [0-9]+ [0-9]+) [0-9]+ /\1 /'";
    let shown = |name: &str| {
        let output = run(program("sh").arg("-c").arg(list).current_dir(folder.join(name))).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(shown("tree"), shown("host"));
    run(program("diff")
        .args(["-r", "--no-dereference", "-x", "pipe", "-x", "device", "host", "tree"])
        .current_dir(folder))
    .unwrap();
    let device = fs::symlink_metadata(folder.join("tree/device")).unwrap();
    assert_eq!(device.rdev(), fs::symlink_metadata(folder.join("host/device")).unwrap().rdev());
    for (refused, reason) in [
        (&["mkdir", "@:/dir"][..], "file exists"),
        (&["rmdir", "@:/moved"], "directory not empty"),
        (&["rm", "@:/dir"], "is a directory"),
        (&["chattr", "+i", "@:/hard"], "not supported"),
    ] {
        let (code, _, said) = run_ours(refused);
        assert!(code != Some(0) && said.contains(reason), "{refused:?}: {said}");
    }
    // A shell uses one connection for all its lines.
    prints(
        &["shell", "@:/", "-c", "mkdir one; cp host:more/text one/two; mv one/two one/three; cat one/three"],
        "text\n",
    );
    assert_eq!(fs::read(folder.join("tree/one/three")).unwrap(), b"text\n");
}
