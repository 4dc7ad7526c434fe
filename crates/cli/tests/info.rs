//! `obento info`: the operating system of a volume.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use obento_testkit::oracle::{self, Oracle, require};

/// Runs a command that must succeed without messages.
#[track_caller]
fn run(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let said = text(output.stderr);
    assert!(output.status.success() && said.is_empty(), "{args:?}: {said}");
    text(output.stdout)
}

/// Builds `disk.img` from a tree with these files.
fn disk(folder: &Path, files: &[(&str, &[u8])]) {
    let tree = folder.join("tree");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir(&tree).unwrap();
    for (name, bytes) in files {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match bytes.strip_prefix(b"-> ") {
            Some(target) => symlink(str::from_utf8(target).unwrap(), path).unwrap(),
            None => fs::write(path, bytes).unwrap(),
        }
    }
    run(folder, &["build", "-q", "-F", "-t", "ext2", "disk.img", "--from", "tree"]);
}

/// The start of an ELF file for AArch64.
fn elf() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (bytes[16], bytes[18]) = (3, 183);
    bytes
}

#[test]
fn the_operating_system_is_read_from_the_files() {
    let folder = tempfile::tempdir().unwrap();
    disk(
        folder.path(),
        &[
            ("etc/os-release", b"-> ../usr/lib/os-release"),
            (
                "usr/lib/os-release",
                b"ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
            ),
            ("etc/hostname", b"# the name\nmail\n"),
            ("bin", b"-> usr/bin"),
            ("usr/bin/sh", b"-> dash"),
            ("usr/bin/dash", &elf()),
            ("lib", b"-> usr/lib"),
            ("usr/lib/systemd/systemd", b""),
            ("var/lib/dpkg/status", b""),
        ],
    );
    let text = run(folder.path(), &["info", "disk.img"]);
    for (name, value) in [
        ("operating system", "Debian GNU/Linux 12 (bookworm)"),
        ("OS ID", "debian"),
        ("OS version", "12"),
        ("host name", "mail"),
        ("architecture", "ARM aarch64"),
        ("init system", "systemd"),
        ("package manager", "dpkg"),
    ] {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        assert!(line.is_some_and(|line| line.ends_with(value)), "{name}: {text}");
    }
    let json = run(folder.path(), &["--json", "info", "disk.img"]);
    assert!(
        json.contains("\"os\":{\"architecture\":\"ARM aarch64\",\"host_name\":\"mail\",\"id\":\"debian\""),
        "{json}"
    );
}

#[test]
fn hostile_files_are_not_followed_out_of_the_image_and_change_no_line() {
    let folder = tempfile::tempdir().unwrap();
    disk(
        folder.path(),
        &[
            (
                "etc/os-release",
                format!("ID=\"a\x1b[31m\u{7}\"\nPRETTY_NAME={}\n", "x".repeat(1 << 20)).as_bytes(),
            ),
            ("etc/hostname", b"-> hostname"),
            ("bin/sh", b"-> /../../../../bin/sh"),
            ("sbin", b"-> sbin"),
            ("var/lib/rpm", b"-> /"),
        ],
    );
    let text = run(folder.path(), &["info", "disk.img"]);
    assert!(
        !text.contains('\x1b') && !text.contains("architecture") && !text.contains("host name"),
        "{text}"
    );
    assert!(text.len() < 4000 && text.contains("package manager"), "{text}");
    // A volume of data has no operating system.
    disk(folder.path(), &[("photo.jpg", b"x")]);
    assert!(!run(folder.path(), &["info", "disk.img"]).contains("package manager"));
}

/// The start of an ELF file for `machine` (`e_machine`), as large as those that file(1) examines.
fn program(machine: u8) -> Vec<u8> {
    let mut bytes = elf();
    bytes.resize(4096, 0);
    (bytes[6], bytes[18], bytes[20]) = (1, machine, 1);
    bytes
}

/// An operating system: its files, and the name that virt-inspector has for its distribution.
struct Root {
    distro: &'static str,
    machine: u8,
    files: &'static [(&'static str, &'static str)],
}

const DPKG: (&str, &str) = ("var/lib/dpkg/status", "");
const RPM: (&str, &str) = ("var/lib/rpm/Packages", "");
const ROOTS: [Root; 9] = [
    Root {
        distro: "debian",
        machine: 62,
        files: &[
            (
                "etc/os-release",
                "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n",
            ),
            ("etc/debian_version", "12.9\n"),
            ("etc/hostname", "mail\n"),
            DPKG,
        ],
    },
    Root {
        distro: "debian",
        machine: 62,
        files: &[("etc/debian_version", "5.0.3\n"), ("etc/hostname", "lenny\n"), DPKG],
    },
    Root {
        distro: "ubuntu",
        machine: 183,
        files: &[
            ("etc/os-release", "PRETTY_NAME=\"Ubuntu 22.04.3 LTS\"\nVERSION_ID=\"22.04\"\nID=ubuntu\n"),
            ("etc/debian_version", "bookworm/sid\n"),
            ("etc/hostname", "web1\n"),
            DPKG,
        ],
    },
    Root {
        distro: "ubuntu",
        machine: 62,
        files: &[
            (
                "etc/lsb-release",
                "DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=10.04\nDISTRIB_DESCRIPTION=\"Ubuntu 10.04.1 LTS\"\n",
            ),
            ("etc/debian_version", "squeeze/sid\n"),
            DPKG,
        ],
    },
    Root {
        distro: "alpinelinux",
        machine: 62,
        files: &[
            ("etc/os-release", "ID=alpine\nVERSION_ID=3.19.1\nPRETTY_NAME=\"Alpine Linux v3.19\"\n"),
            ("etc/alpine-release", "3.19.1\n"),
            ("etc/hostname", "edge\n"),
            ("lib/apk/db/installed", ""),
        ],
    },
    Root {
        distro: "fedora",
        machine: 62,
        files: &[
            (
                "etc/os-release",
                "ID=fedora\nVERSION_ID=39\nPRETTY_NAME=\"Fedora Linux 39 (Server Edition)\"\n",
            ),
            ("etc/redhat-release", "Fedora release 39 (Thirty Nine)\n"),
            ("etc/hostname", "db.example.org\n"),
            RPM,
        ],
    },
    Root {
        distro: "centos",
        machine: 62,
        files: &[
            ("etc/redhat-release", "CentOS release 6.10 (Final)\n"),
            ("etc/sysconfig/network", "NETWORKING=yes\nHOSTNAME=old.example.org\n"),
            RPM,
        ],
    },
    Root {
        distro: "opensuse",
        machine: 62,
        files: &[
            (
                "etc/os-release",
                "ID=\"opensuse-leap\"\nVERSION_ID=\"15.5\"\nPRETTY_NAME=\"openSUSE Leap 15.5\"\n",
            ),
            ("etc/HOSTNAME", "suse1\n"),
            RPM,
        ],
    },
    Root {
        distro: "archlinux",
        machine: 62,
        files: &[
            ("etc/os-release", "ID=arch\nPRETTY_NAME=\"Arch Linux\"\n"),
            ("etc/arch-release", ""),
            ("etc/hostname", "box\n"),
            ("var/lib/pacman/local/ALPM_DB_VERSION", "9\n"),
        ],
    },
];

/// Returns the text of an element of XML, or an empty one.
fn element(xml: &str, name: &str) -> String {
    let (start, end) = (format!("<{name}>"), format!("</{name}>"));
    let text = xml.split_once(&start).and_then(|(_, rest)| rest.split_once(&end));
    text.map_or(String::new(), |(text, _)| text.to_owned())
}

/// Returns a value of the object `os` of JSON, or an empty one.
fn value(json: &str, key: &str) -> String {
    let os = json.split_once("\"os\":{").map_or("", |(_, os)| os);
    let text = os.split_once(&format!("\"{key}\":\"")).and_then(|(_, rest)| rest.split_once('"'));
    text.map_or(String::new(), |(text, _)| text.to_owned())
}

/// Returns the first two numbers of a version.
fn numbers(version: &str) -> [u32; 2] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    [parts.next().unwrap_or(0), parts.next().unwrap_or(0)]
}

#[test]
#[ignore = "boots the appliance of libguestfs: docs/campaigns/inspector.md"]
fn virt_inspector_finds_the_same_systems() {
    if !require(&[Oracle::Program("virt-inspector")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut judge = oracle::program("virt-inspector");
    judge.arg("--no-applications");
    for (number, root) in ROOTS.iter().enumerate() {
        let program = program(root.machine);
        let mut files: Vec<(&str, &[u8])> =
            vec![("bin/sh", &program), ("bin/ls", &program), ("etc/fstab", b"")];
        files.extend(root.files.iter().map(|(path, text)| (*path, text.as_bytes())));
        disk(folder.path(), &files);
        let image = folder.path().join(format!("{number}.img"));
        fs::rename(folder.path().join("disk.img"), &image).unwrap();
        judge.arg("-a").arg(image);
    }
    let xml = String::from_utf8(oracle::run(&mut judge).unwrap().stdout).unwrap();
    let systems: Vec<&str> = xml.split("<operatingsystem>").skip(1).collect();
    assert_eq!(systems.len(), ROOTS.len(), "{xml}");
    for (number, (root, system)) in ROOTS.iter().zip(systems).enumerate() {
        let json = run(folder.path(), &["--json", "info", &format!("{number}.img")]);
        let (ours, theirs) = (|key: &str| value(&json, key), |key: &str| element(system, key));
        println!("| {} | {} | {} |", theirs("distro"), theirs("product_name"), ours("name"));
        assert_eq!(theirs("distro"), root.distro, "{system}");
        let distro = match ours("id") {
            id if id == "alpine" => "alpinelinux".to_owned(),
            id if id == "arch" => "archlinux".to_owned(),
            id => id.trim_end_matches("-leap").to_owned(),
        };
        assert_eq!(distro, root.distro, "{json}");
        let version = [theirs("major_version"), theirs("minor_version")].join(".");
        assert_eq!(numbers(&ours("version")), numbers(&version), "{json}{system}");
        assert_eq!(ours("host_name"), theirs("hostname"), "{json}{system}");
        let machine = if ours("architecture").contains("aarch64") { "aarch64" } else { "x86_64" };
        assert_eq!(machine, theirs("arch"), "{json}");
        let format = ours("package_manager").replace("dpkg", "deb");
        assert_eq!(format, theirs("package_format"), "{json}");
        // If a file contains only a version, virt-inspector uses it as the name.
        assert!(theirs("product_name").split(' ').all(|word| json.contains(word)), "{json}{system}");
    }
}

#[test]
fn systems_without_os_release_are_named_by_their_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let of = |files: &[(&str, &[u8])]| {
        disk(folder.path(), files);
        let json = run(folder.path(), &["--json", "info", "disk.img"]);
        ["id", "version", "name", "host_name"].map(|key| value(&json, key))
    };
    let network = b"NETWORKING=yes\nHOSTNAME=old.example.org\n";
    assert_eq!(
        of(&[("etc/redhat-release", b"CentOS release 6.10 (Final)\n"), ("etc/sysconfig/network", network)]),
        ["centos", "6.10", "CentOS release 6.10 (Final)", "old.example.org"]
    );
    assert_eq!(
        of(&[("etc/debian_version", b"5.0.3\n"), ("etc/HOSTNAME", b"lenny\n")]),
        ["debian", "5.0.3", "Debian GNU/Linux 5.0.3", "lenny"]
    );
    // The release file of Debian has the point release, which os-release lacks.
    assert_eq!(
        of(&[("etc/os-release", b"ID=debian\nVERSION_ID=12\nNAME=x\n"), ("etc/debian_version", b"12.9\n")]),
        ["debian", "12.9", "x", ""]
    );
}
