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
            "info",
            "types",
            "ls",
            "tree",
            "find",
            "grep",
            "cat",
            "head",
            "tail",
            "hexdump",
            "wc",
            "stat",
            "file",
            "readlink",
            "du",
            "df",
            "diff",
            "cmp",
            "sha256sum",
            "sha512sum",
            "sha1sum",
            "md5sum",
            "b3sum",
            "getfattr",
            "getfacl",
            "lsattr",
            "inspect",
            "prov",
        ],
    ),
    ("Extract", &["cp", "export", "recover", "undelete"]),
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
    ("Create", &["build", "convert", "mkfs", "mkfs.fat", "mkfs.exfat"]),
    ("Disks", &["part", "resize", "tune"]),
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

/// Pages that are related to the subcommands of `part`.
const PART: &[&str] = &["sfdisk(8)", "sgdisk(8)"];

/// All pages.
pub const PAGES: &[Page] = &[
    simple(
        "info",
        &[
            ("obento info disk.img", "Show the partitions of a disk and their file systems"),
            ("obento info disk.img@2", "Show the file system in partition 2"),
            ("obento info disk.qcow2", "Show also the snapshots; 'disk.qcow2%NAME' is an image of its own"),
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
        name: "grep",
        examples: &[
            ("obento grep -rn PermitRoot disk.img:/etc", "Find lines below /etc, with their numbers"),
            ("obento grep -rlF 'TODO' disk.img --include='*.c'", "List the C files that contain a string"),
            (
                "obento grep -c error 'disk.img:/var/log/*.log'",
                "Count lines in the files that match a pattern inside the image",
            ),
        ],
        exit: Some(&[
            ("0", "A line was selected."),
            ("1", "No line was selected."),
            ("2", "Wrong usage, or a file could not be read."),
        ]),
        environment: &[],
        see_also: &["grep(1)"],
    },
    simple(
        "head",
        &[
            ("obento head -n 20 disk.img:/var/log/syslog", "Print the first 20 lines of a file"),
            ("obento head -c 512 disk.img:/boot/mbr.bin | xxd", "Print the first 512 bytes of a file"),
        ],
        &["head(1)"],
    ),
    simple(
        "tail",
        &[
            ("obento tail disk.img:/var/log/syslog", "Print the last 10 lines of a file"),
            ("obento tail -n +2 disk.img:/data.csv", "Print all lines but the first"),
        ],
        &["tail(1)"],
    ),
    simple(
        "hexdump",
        &[(
            "obento hexdump -s 0x200 -n 64 disk.img:/boot/kernel",
            "Print 64 bytes of a file from byte 512 on",
        )],
        &["hexdump(1)", "xxd(1)"],
    ),
    simple(
        "file",
        &[
            ("obento file 'disk.img:/usr/bin/*'", "Print the types of the files in a directory"),
            ("obento file -bi disk.img:/srv/upload", "Print the MIME type of a file"),
        ],
        &["file(1)"],
    ),
    simple("wc", &[("obento wc -l disk.img:/etc/passwd", "Count the lines of a file")], &["wc(1)"]),
    Page {
        name: "cmp",
        examples: &[
            ("obento cmp disk.img:/etc/fstab fstab", "Compare a file with one of the host"),
            ("obento cmp -l one.img:/f other.img:/f", "Print all bytes that differ"),
        ],
        exit: Some(&[
            ("0", "The files are the same."),
            ("1", "The files differ."),
            ("2", "Wrong usage, or a file could not be read."),
        ]),
        environment: &[],
        see_also: &["cmp(1)"],
    },
    simple(
        "sha256sum",
        &[
            ("obento sha256sum -r disk.img:/usr > sums", "Print the checksums of all files below /usr"),
            (
                "obento sha256sum --check sums",
                "Compare the files of an image with a list that obento printed",
            ),
            (
                "obento sha256sum -c tree.sums --root disk.img:/srv",
                "Compare a directory with a list that names files relative to it",
            ),
        ],
        &["sha256sum(1)"],
    ),
    simple(
        "sha512sum",
        &[("obento sha512sum disk.img:/boot/vmlinuz", "Print a checksum")],
        &["sha512sum(1)"],
    ),
    simple("sha1sum", &[("obento sha1sum disk.img:/boot/vmlinuz", "Print a checksum")], &["sha1sum(1)"]),
    simple(
        "md5sum",
        &[(
            "obento md5sum -c bash.md5sums --root disk.img",
            "Compare files with the checksums of a Debian package",
        )],
        &["md5sum(1)"],
    ),
    simple(
        "b3sum",
        &[("obento b3sum -r disk.img:/srv", "Print the checksums of a directory")],
        &["b3sum(1)"],
    ),
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
    simple(
        "df",
        &[("obento df -h disk.img", "Show the used and free space of all file systems of a disk")],
        &["df(1)"],
    ),
    Page {
        name: "diff",
        examples: &[
            ("obento diff -r one.img other.img", "Compare the files of two volumes"),
            (
                "obento diff -rm disk.img:/etc /etc",
                "Compare a directory with one of the host, including attributes",
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
        name: "prov",
        examples: &[
            ("obento prov disk.img -n 20", "Show what happened last on a volume"),
            ("obento prov disk.img --of /bin/app", "Show the sources of /bin/app"),
            ("obento prov disk.img --of /src/bad.c --forward", "Show what is affected if /src/bad.c is bad"),
            ("obento prov disk.img --changed-since 1200 -0 > changed", "List what changed since record 1200"),
            ("obento prov disk.img --export prov-json > prov.json", "Write the graph for other programs"),
        ],
        exit: None,
        environment: &[TZ, ("LS_COLORS", "The colours of names, as dircolors(1) prints them.")],
        see_also: &[],
    },
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
    Page {
        name: "recover",
        examples: &[
            ("obento recover disk.img saved", "Copy all files that can be read out of a damaged volume"),
            (
                "obento recover --map rescue.map rescue.img saved --report list",
                "Recover files from a copy of ddrescue, and list the damaged ones",
            ),
        ],
        exit: Some(&[
            ("0", "All files are complete."),
            ("1", "A file is damaged or lost; the others are complete."),
            ("2", "Wrong usage, or nothing could be recovered."),
        ]),
        environment: &[],
        see_also: &["ddrescue(1)", "testdisk(8)"],
    },
    Page {
        name: "undelete",
        examples: &[
            ("obento undelete card.img", "List the deleted files of a memory card"),
            ("obento undelete card.img '*.jpg' --to photos", "Copy deleted photographs to a directory"),
        ],
        exit: Some(&[
            ("0", "Deleted files were found."),
            ("1", "No deleted files were found, or a file could not be copied."),
            ("2", "Wrong usage, or the image could not be searched."),
        ]),
        environment: &[TZ],
        see_also: &["testdisk(8)", "photorec(8)"],
    },
    simple(
        "part",
        &[
            ("obento part disk.img", "List the partitions and the free space of a disk"),
            ("obento part disk.img create gpt", "Create an empty table on a blank disk"),
            ("obento part disk.img add --size 512M --type esp --name ESP", "Add a partition"),
            ("obento part disk.img grow 2", "Grow a partition up to the next one or the end of the disk"),
            ("obento part disk.img delete 3", "Delete a partition"),
            ("obento part disk.img attributes 1 +legacy-bootable", "Set an attribute"),
            ("obento part disk.img repair-backup", "Write both copies of a GPT again"),
        ],
        &["sfdisk(8)", "sgdisk(8)", "growpart(1)"],
    ),
    simple("part list", &[("obento part disk.img list", "List the partitions and the free space")], PART),
    simple(
        "part create",
        &[("obento part disk.img create mbr --force", "Replace a partition table by an empty MBR")],
        PART,
    ),
    simple(
        "part add",
        &[("obento part disk.img add --size 512M --type esp --name ESP", "Add an EFI system partition")],
        PART,
    ),
    simple("part delete", &[("obento part disk.img delete 3", "Delete partition 3")], PART),
    simple("part grow", &[("obento part disk.img grow 2", "Grow a partition as far as possible")], PART),
    simple("part type", &[("obento part disk.img type 1 esp", "Set the type by its name")], PART),
    simple("part name", &[("obento part disk.img name 2 root", "Set the name of a partition")], PART),
    simple("part uuid", &[("obento part disk.img uuid 2 random", "Set a random UUID")], PART),
    simple(
        "part attributes",
        &[("obento part disk.img attributes 1 +legacy-bootable", "Set an attribute")],
        PART,
    ),
    simple(
        "part repair-backup",
        &[("obento part disk.img repair-backup", "Write the backup GPT to the end of a larger disk")],
        PART,
    ),
    simple(
        "resize",
        &[
            ("obento resize root.img 20G", "Grow the image file, and the volume in it, to 20 GiB"),
            ("obento resize disk.img@2 +4G", "Grow a partition and its volume by 4 GiB"),
            ("obento resize /dev/sdb1 --maximum", "Grow a volume to the end of its device"),
            ("obento resize root.img 1T --dry-run", "Print the size that the volume would have"),
        ],
        &["resize2fs(8)", "growpart(1)", "qemu-img(1)"],
    ),
    simple(
        "tune",
        &[
            ("obento tune disk.img@2 -L data", "Set the label"),
            ("obento tune root.img -U random -m 1", "Set a new UUID, and reserve one percent of the blocks"),
            (
                "obento tune root.img -e remount-ro -o acl,^discard",
                "Set the behaviour on errors and mount options",
            ),
            ("obento tune stick.img -U 1234-ABCD", "Set the serial number of a FAT or exFAT volume"),
        ],
        &["tune2fs(8)", "fatlabel(8)", "exfatlabel(8)"],
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
    simple(
        "convert",
        &[
            ("obento convert disk.vmdk disk.qcow2", "Convert a VMware disk for QEMU"),
            ("obento convert -c --verify disk.img disk.qcow2", "Compress a disk, and compare the result"),
            ("obento convert disk.qcow2 azure.vhd", "Create a fixed VHD in whole MiB for Azure"),
            ("obento convert disk.img@2 -O android-sparse system.simg", "Convert one partition for fastboot"),
            (
                "obento convert --backing base.qcow2 test.qcow2",
                "Create an image that stores only changes of base.qcow2",
            ),
            ("obento convert --checksum disk.vdi disk.img.zst", "Pack a disk and print its SHA-256 checksum"),
        ],
        &["qemu-img(1)", "img2simg(1)"],
    ),
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
            (
                "obento mount --all disk.img mnt",
                "Mount partition 1 at mnt/1, partition 2 at mnt/2, and so on",
            ),
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
        exit: Some(&[
            ("0", "Nothing became slower, and no result is missing."),
            ("1", "A result became slower or is missing."),
        ]),
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
