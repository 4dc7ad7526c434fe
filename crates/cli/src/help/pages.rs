//! What the help and the manual page of each subcommand show beside its options.

/// The facts of a subcommand.
pub struct Page {
    /// The words after `obento`.
    pub name: &'static str,
    /// Command lines, and what each does.
    pub examples: &'static [(&'static str, &'static str)],
    /// Exit statuses; `None` for [`EXIT`].
    pub exit: Option<&'static [(&'static str, &'static str)]>,
    /// Variables, besides those in [`ENVIRONMENT`].
    pub environment: &'static [(&'static str, &'static str)],
    /// Manual pages.
    pub see_also: &'static [&'static str],
}

/// The subcommands in the groups and the order in which the overview lists them.
pub const GROUPS: &[(&str, &[&str])] = &[
    (
        "Look",
        &[
            "info", "types", "ls", "tree", "find", "cat", "stat", "readlink", "du", "df", "diff", "getfattr",
            "getfacl", "lsattr", "inspect",
        ],
    ),
    ("Extract", &["cp", "export"]),
    (
        "Change",
        &[
            "import",
            "mv",
            "ln",
            "rm",
            "mkdir",
            "rmdir",
            "touch",
            "write",
            "truncate",
            "fallocate",
            "mknod",
            "mkfifo",
            "chmod",
            "chown",
            "chgrp",
            "setfattr",
            "setfacl",
            "chattr",
            "exec",
            "edit",
            "shell",
            "sync",
            "trim",
        ],
    ),
    ("Create", &["build", "mkfs", "mkfs.fat", "mkfs.exfat"]),
    ("Check", &["check"]),
    ("Mount", &["mount", "umount"]),
    ("Measure", &["bench"]),
    ("Help", &["help", "man", "completions"]),
];

/// The exit statuses of most subcommands.
pub const EXIT: &[(&str, &str)] = &[
    ("0", "Everything succeeded."),
    ("1", "Part of the work failed; the rest was done."),
    ("2", "Wrong usage, or nothing could be done."),
];

/// The variables that every subcommand uses.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("OBENTO_READONLY", "If it is set to anything but 0, obento refuses to change images."),
    ("OBENTO_LINUX", "The kernel of the kernel engine; the default is linux.uml on PATH."),
    ("TMPDIR", "The directory for temporary files; the default is /tmp."),
    ("NO_COLOR", "If it is not empty, output has no colours unless --color requests them."),
];

const TZ: (&str, &str) = ("TZ", "The time zone in which times are read and shown.");
const EPOCH: (&str, &str) = (
    "SOURCE_DATE_EPOCH",
    "The time that is written, in seconds since 1970, so that builds are reproducible.",
);
const BACKUP: &[(&str, &str)] = &[
    ("VERSION_CONTROL", "The kind of backup if --backup names none."),
    ("SIMPLE_BACKUP_SUFFIX", "The suffix of simple backups if -S names none; the default is ~."),
];

/// Returns the page of the subcommand whose words after `obento` are `name`.
pub fn page(name: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.name == name)
}

const fn simple(
    name: &'static str,
    examples: &'static [(&'static str, &'static str)],
    see_also: &'static [&'static str],
) -> Page {
    Page { name, examples, exit: None, environment: &[], see_also }
}

/// All pages.
pub const PAGES: &[Page] = &[
    simple(
        "info",
        &[
            ("obento info disk.img", "Show the partitions of a disk and their file systems"),
            ("obento info disk.img@2", "Show the file system in partition 2"),
        ],
        &["blkid(8)", "fdisk(8)"],
    ),
    simple("types", &[("obento types", "List the types of file systems")], &["filesystems(5)"]),
    Page {
        name: "ls",
        examples: &[
            ("obento ls disk.img", "List the root directory"),
            ("obento ls -l disk.img@2:/etc", "List /etc in partition 2 with all attributes"),
            ("obento ls 'disk.img:/etc/*.conf'", "List the files that match a pattern inside the image"),
        ],
        exit: Some(&[
            ("0", "Everything was listed."),
            ("1", "A file below an operand cannot be accessed."),
            ("2", "Wrong usage, or an operand cannot be accessed."),
        ]),
        environment: &[
            TZ,
            ("LS_COLORS", "The colours of names, as dircolors(1) prints them."),
            ("TIME_STYLE", "The format of times if --time-style is absent."),
            ("QUOTING_STYLE", "The quoting of names if --quoting-style is absent."),
            ("COLUMNS", "The width of the output."),
        ],
        see_also: &["ls(1)", "dircolors(1)"],
    },
    simple("tree", &[("obento tree -L 2 disk.img", "Draw the upper two levels of a volume")], &["tree(1)"]),
    Page {
        name: "find",
        examples: &[
            (
                "obento find disk.img -name '*.conf' -size +10k",
                "Find configuration files of more than 10 KiB",
            ),
            ("obento find disk.img -perm -4000 -ls", "List the set-user-ID files"),
            ("obento find disk.img -type f -exec sha256sum {} \\;", "Hash a copy of each file"),
        ],
        exit: None,
        environment: &[TZ, ("OBENTO_ADDRESS", "Set for the commands of -exec: the address of the file.")],
        see_also: &["find(1)"],
    },
    simple("cat", &[("obento cat disk.img:/etc/os-release", "Print a file")], &["cat(1)"]),
    Page {
        name: "stat",
        examples: &[
            ("obento stat disk.img:/etc/passwd", "Show all attributes of a file"),
            ("obento stat -c '%a %U %n' disk.img:/etc/passwd", "Print the mode, the owner and the name"),
            ("obento stat -f disk.img", "Show the use of the file system"),
        ],
        exit: None,
        environment: &[TZ],
        see_also: &["stat(1)"],
    },
    simple(
        "readlink",
        &[("obento readlink -f disk.img:/bin/sh", "Print the path without symbolic links")],
        &["readlink(1)"],
    ),
    simple("du", &[("obento du -sh disk.img:/usr", "Print the space that /usr uses")], &["du(1)"]),
    simple("df", &[("obento df -h disk.img", "Show how full all file systems of a disk are")], &["df(1)"]),
    Page {
        name: "diff",
        examples: &[
            ("obento diff -r one.img other.img", "Compare the files of two volumes"),
            (
                "obento diff -rm disk.img:/etc /etc",
                "Compare a directory with one of the host, attributes too",
            ),
            ("obento diff --bytes one.img other.img", "Name the structure of the first different byte"),
        ],
        exit: Some(&[
            ("0", "The operands are the same."),
            ("1", "The operands differ."),
            ("2", "Wrong usage, or a part could not be compared."),
        ]),
        environment: &[TZ],
        see_also: &["diff(1)", "cmp(1)"],
    },
    simple(
        "getfattr",
        &[("obento getfattr -d -m - disk.img:/usr/bin/ping", "Show all extended attributes of a file")],
        &["getfattr(1)", "xattr(7)"],
    ),
    simple(
        "getfacl",
        &[("obento getfacl disk.img:/srv", "Show the access control list")],
        &["getfacl(1)", "acl(5)"],
    ),
    simple(
        "lsattr",
        &[("obento lsattr disk.img:/etc", "Show the flags of files")],
        &["lsattr(1)", "chattr(1)"],
    ),
    simple(
        "inspect",
        &[
            ("obento inspect super disk.img", "Show the super block"),
            ("obento inspect inode disk.img:/etc/passwd", "Show the inode of a file and its mapping"),
        ],
        &["debugfs(8)"],
    ),
    Page {
        name: "cp",
        examples: &[
            ("obento cp -a disk.img:/etc backup", "Copy a directory out of an image"),
            ("obento cp -a site disk.img:/srv/", "Copy a directory into an image"),
            ("obento cp --untrusted -a disk.img:/home .", "Copy without special bits and device nodes"),
        ],
        exit: None,
        environment: BACKUP,
        see_also: &["cp(1)"],
    },
    simple(
        "export",
        &[
            ("obento export disk.img root.tar", "Write all files to an archive"),
            ("obento export disk.img:/etc | tar -tv", "List the archive of a directory"),
        ],
        &["tar(1)", "pax(1)"],
    ),
    simple(
        "import",
        &[
            ("obento import disk.img:/ root.tar.zst", "Extract an archive into the root directory"),
            ("tar -c site | obento import disk.img:/srv", "Extract an archive from a pipe"),
        ],
        &["tar(1)"],
    ),
    Page {
        name: "mv",
        examples: &[
            ("obento mv disk.img:/a disk.img:/b", "Rename a file"),
            ("obento mv disk.img:/var/log/old.log .", "Move a file to the host"),
        ],
        exit: None,
        environment: BACKUP,
        see_also: &["mv(1)", "rename(2)"],
    },
    Page {
        name: "ln",
        examples: &[
            ("obento ln -s ../usr/bin disk.img:/bin", "Create a symbolic link"),
            ("obento ln disk.img:/a disk.img:/b", "Create a hard link"),
        ],
        exit: None,
        environment: BACKUP,
        see_also: &["ln(1)", "link(2)", "symlink(2)"],
    },
    simple("rm", &[("obento rm -r disk.img:/var/cache", "Remove a directory and its contents")], &["rm(1)"]),
    simple(
        "mkdir",
        &[("obento mkdir -p disk.img:/srv/www", "Create a directory and its parents")],
        &["mkdir(1)"],
    ),
    simple("rmdir", &[("obento rmdir disk.img:/lost", "Remove an empty directory")], &["rmdir(1)"]),
    Page {
        name: "touch",
        examples: &[
            ("obento touch disk.img:/forcefsck", "Create an empty file, or set its times to now"),
            ("obento touch -d '2026-11-21 13:48' disk.img:/a", "Set the times of a file"),
        ],
        exit: None,
        environment: &[TZ],
        see_also: &["touch(1)"],
    },
    simple(
        "write",
        &[
            ("echo myhost | obento write disk.img:/etc/hostname", "Replace the contents of a file"),
            ("echo 10.0.0.1 db | obento write -a disk.img:/etc/hosts", "Append a line to a file"),
        ],
        &["tee(1)"],
    ),
    simple(
        "truncate",
        &[("obento truncate -s 10M disk.img:/swapfile", "Set the size of a file")],
        &["truncate(1)"],
    ),
    simple(
        "fallocate",
        &[
            ("obento fallocate -l 1G disk.img:/db", "Allocate space for a file"),
            ("obento fallocate -d disk.img:/db", "Turn zeros into holes"),
        ],
        &["fallocate(1)", "fallocate(2)"],
    ),
    simple("mknod", &[("obento mknod disk.img:/dev/null c 1 3", "Create a device node")], &["mknod(1)"]),
    simple("mkfifo", &[("obento mkfifo disk.img:/run/pipe", "Create a named pipe")], &["mkfifo(1)"]),
    simple(
        "chmod",
        &[
            ("obento chmod 600 disk.img:/etc/shadow", "Set the mode of a file"),
            ("obento chmod -R u+rwX,go-w disk.img:/srv", "Change the modes below a directory"),
        ],
        &["chmod(1)"],
    ),
    simple(
        "chown",
        &[(
            "obento chown -R www-data:www-data disk.img:/srv",
            "Set owner and group by the names of the image",
        )],
        &["chown(1)"],
    ),
    simple("chgrp", &[("obento chgrp staff disk.img:/srv", "Set the group of a file")], &["chgrp(1)"]),
    simple(
        "setfattr",
        &[("obento setfattr -n user.origin -v build-42 disk.img:/app", "Set an extended attribute")],
        &["setfattr(1)", "xattr(7)"],
    ),
    simple(
        "setfacl",
        &[("obento setfacl -m u:ann:rw disk.img:/srv/notes", "Grant a user access to a file")],
        &["setfacl(1)", "acl(5)"],
    ),
    simple("chattr", &[("obento chattr +i disk.img:/etc/passwd", "Make a file immutable")], &["chattr(1)"]),
    Page {
        name: "exec",
        examples: &[
            (
                "obento exec disk.img:/etc/fstab -- sed -i s/sda/vda/ {}",
                "Change a file with a program of the host",
            ),
            ("obento exec disk.img:/var/lib/app.db -- sqlite3 {} vacuum", "Run a database tool on a file"),
        ],
        exit: Some(&[
            ("N", "The exit status of PROGRAM; 128+N if signal N ended it."),
            ("1", "The changes could not be written back."),
            ("2", "Wrong usage, or PROGRAM was not started."),
        ]),
        environment: &[],
        see_also: &[],
    },
    Page {
        name: "edit",
        examples: &[("obento edit disk.img:/etc/fstab", "Edit a file")],
        exit: None,
        environment: &[
            ("VISUAL", "The editor, with its arguments."),
            ("EDITOR", "The editor if VISUAL is not set; the default is vi."),
        ],
        see_also: &["sudoedit(8)"],
    },
    Page {
        name: "shell",
        examples: &[
            ("obento shell disk.img", "Start a shell on an image"),
            (
                "obento shell disk.img -c 'cd /etc; ls; cat fstab'",
                "Run commands on an image that is opened once",
            ),
        ],
        exit: Some(&[("N", "The exit status of the last command.")]),
        environment: &[("XDG_STATE_HOME", "The directory of obento/history; the default is ~/.local/state.")],
        see_also: &[],
    },
    simple(
        "sync",
        &[("obento sync disk.img", "Replay the journal of an image that was in use")],
        &["sync(1)"],
    ),
    simple(
        "trim",
        &[("obento trim -v disk.img", "Turn the free space of an image into holes")],
        &["fstrim(8)"],
    ),
    Page {
        name: "build",
        examples: &[
            ("obento build root.img --from rootfs/ --free 20%", "Build an ext4 image of a directory"),
            ("docker export c1 | obento build root.img --from - -L root", "Build an image of a container"),
            (
                "obento build root.img --from oci:image/ --add init:/sbin/init --chmod go-w",
                "Build an image of an OCI layout and one more file",
            ),
            (
                "obento build -t ext2 initrd.img --from tree.mtree --minimize",
                "Build the smallest image of a manifest",
            ),
            (
                "obento build disk.img --disk layout.toml",
                "Build a disk; 'obento help layout' describes the format",
            ),
        ],
        exit: None,
        environment: &[EPOCH],
        see_also: &["mke2fs(8)", "mtree(5)", "systemd-repart(8)"],
    },
    Page {
        name: "mkfs",
        examples: &[
            ("obento mkfs disk.img 10G", "Create an ext4 volume in a new sparse file"),
            ("obento mkfs -t ext3 -L data -m 0 disk.img", "Format all of disk.img, without reserved blocks"),
            ("obento mkfs -F disk.img@2", "Overwrite partition 2"),
            (
                "obento mkfs -O ^has_journal,casefold -E root_owner=1000:1000 disk.img 1G",
                "Remove and add features, and set the owner of the root directory",
            ),
            ("obento mkfs -t vfat -L BOOT -E fat=32 esp.img 512M", "Create a FAT32 volume"),
            ("obento mkfs -t exfat -L PHOTOS -C 128k card.img 32G", "Create an exFAT volume"),
            ("obento mkfs -t xfs -L data disk.img 1G", "Run mkfs.xfs, which must be installed"),
            ("obento mkfs -O journal_dev log.img 64M", "Create an external journal"),
        ],
        exit: None,
        environment: &[EPOCH],
        see_also: &["mkfs(8)", "mke2fs(8)", "ext4(5)"],
    },
    Page {
        name: "mkfs.fat",
        examples: &[("obento mkfs.fat -C -F 32 -n BOOT esp.img 524288", "Create a FAT32 volume of 512 MiB")],
        exit: None,
        environment: &[EPOCH],
        see_also: &["mkfs.fat(8)"],
    },
    Page {
        name: "mkfs.exfat",
        examples: &[("obento mkfs.exfat -L PHOTOS -c 128K card.img 32G", "Create an exFAT volume")],
        exit: None,
        environment: &[EPOCH],
        see_also: &["mkfs.exfat(8)"],
    },
    Page {
        name: "check",
        examples: &[
            ("obento check disk.img", "Check a volume without writing"),
            ("obento check -p disk.img@2", "Repair what has one certain, lossless repair"),
            ("obento check -y disk.img", "Repair everything"),
        ],
        exit: Some(&[
            ("0", "No problem was found."),
            ("1", "All problems were repaired."),
            ("4", "Problems are left."),
            ("8", "The check could not be done."),
            ("16", "Wrong usage."),
        ]),
        environment: &[],
        see_also: &["fsck(8)", "e2fsck(8)"],
    },
    Page {
        name: "mount",
        examples: &[
            ("obento mount disk.img@2 mnt", "Mount partition 2"),
            ("obento mount -r disk.img mnt", "Mount a volume read-only"),
        ],
        exit: None,
        environment: &[("OBENTO_LOG", "The level of the log: error, warn (the default), info or debug.")],
        see_also: &["mount(8)", "fusermount3(1)"],
    },
    simple(
        "umount",
        &[("obento umount mnt", "Unmount, and wait until all changes are written")],
        &["umount(8)"],
    ),
    Page {
        name: "bench",
        examples: &[
            ("obento bench quick --output r.json", "Run the suite 'quick' and store the results"),
            (
                "obento bench varmail createfiles,T=1 --target kernel:xfs --target path:/srv",
                "Run two workloads on two targets",
            ),
            ("obento bench report r.json --format html --output r.html", "Write a page of the results"),
            ("obento bench compare before.json after.json", "Compare two runs"),
        ],
        exit: Some(&[
            ("0", "All runs finished."),
            ("1", "A run failed or was interrupted."),
            ("2", "Wrong usage."),
        ]),
        environment: &[],
        see_also: &["fio(1)"],
    },
    Page {
        name: "bench compare",
        examples: &[("obento bench compare before.json after.json", "Show what became slower or faster")],
        exit: Some(&[("0", "Nothing became slower, and no result is missing."), ("1", "Something did.")]),
        environment: &[],
        see_also: &[],
    },
    simple(
        "bench report",
        &[("obento bench report r.json --format markdown", "Print a table of the results")],
        &[],
    ),
    simple("bench list", &[("obento bench list", "List the suites and workloads")], &[]),
    simple(
        "help",
        &[
            ("obento help cp", "Show the options of a command"),
            ("obento help options", "Show the options of every command"),
            ("obento help layout", "Show the layout format of 'obento build --disk'"),
        ],
        &[],
    ),
    simple(
        "man",
        &[
            ("obento man | man -l -", "Show the main page"),
            ("obento man ~/.local/share/man/man1", "Install all pages"),
        ],
        &["man(1)"],
    ),
    simple(
        "completions",
        &[
            (
                "obento completions bash > ~/.local/share/bash-completion/completions/obento",
                "Install the completions for bash",
            ),
            ("obento completions zsh > ~/.zfunc/_obento", "Install the completions for zsh"),
            (
                "obento completions fish > ~/.config/fish/completions/obento.fish",
                "Install the completions for fish",
            ),
        ],
        &["bash(1)"],
    ),
];

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;
    use crate::cli::Cli;
    use crate::commands::shell::words::parse;

    #[test]
    fn each_command_has_a_page_and_each_page_a_command() {
        fn check(command: &Command, path: &str) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let path = format!("{path} {}", sub.get_name()).trim_start().to_owned();
                assert!(path.starts_with("inspect ") || page(&path).is_some(), "{path}");
                check(sub, &path);
            }
        }
        let command = Cli::command();
        check(&command, "");
        for page in PAGES {
            let mut words = page.name.split(' ');
            assert!(
                words.try_fold(&command, |command, word| command.find_subcommand(word)).is_some(),
                "{}",
                page.name
            );
        }
    }

    #[test]
    fn each_example_is_a_command_line_that_parses() {
        for (line, _) in PAGES.iter().flat_map(|page| page.examples) {
            let own = line.split(" | ").find(|part| part.starts_with("obento ")).unwrap();
            let own = own.split(" > ").next().unwrap().replace('~', "");
            let statements = parse(own.as_bytes()).unwrap();
            assert!(crate::cli::parse(statements[0].words.clone()).is_ok(), "{line}");
            assert!(line.len() <= 78, "{line}");
        }
    }
}
