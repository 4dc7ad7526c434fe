//! What the help and the manual page of a subcommand show beside its options.

/// Pairs of a term and its description.
pub type Terms = &'static [(&'static str, &'static str)];
/// Groups of subcommands with their titles, and the subcommands with their pages, in the order of the overview.
pub type Groups = &'static [(&'static str, &'static [(&'static str, &'static Page)])];

/// The facts of a subcommand.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Command lines, and what each does.
    pub examples: Terms,
    /// Exit statuses; `None` for [`EXIT`].
    pub exit: Option<Terms>,
    /// Variables, besides those in [`ENVIRONMENT`].
    pub environment: Terms,
    /// Manual pages.
    pub see_also: &'static [&'static str],
    /// The names and the pages of its subcommands.
    pub subcommands: &'static [(&'static str, Page)],
    /// The exit status if standard output cannot be written.
    pub unwritten: u8,
}

impl Page {
    /// Creates a page with `examples` and the usual exit statuses and variables.
    pub const fn new(examples: Terms) -> Self {
        Self { examples, exit: None, environment: &[], see_also: &[], subcommands: &[], unwritten: 1 }
    }

    /// Replaces the exit statuses.
    #[must_use]
    pub const fn exit(self, exit: Terms) -> Self {
        Self { exit: Some(exit), ..self }
    }

    /// Sets the exit status for standard output that cannot be written, if 1 has another meaning.
    #[must_use]
    pub const fn unwritten(self, unwritten: u8) -> Self {
        Self { unwritten, ..self }
    }

    /// Sets the variables that only this subcommand uses.
    #[must_use]
    pub const fn environment(self, environment: Terms) -> Self {
        Self { environment, ..self }
    }

    /// Sets the related manual pages.
    #[must_use]
    pub const fn see_also(self, see_also: &'static [&'static str]) -> Self {
        Self { see_also, ..self }
    }

    /// Sets the pages of its subcommands.
    #[must_use]
    pub const fn subcommands(self, subcommands: &'static [(&'static str, Self)]) -> Self {
        Self { subcommands, ..self }
    }
}

/// The page of `obento` itself.
pub const MAIN: Page = Page::new(&[
    ("obento info disk.img", "Show the partitions and the file systems of an image"),
    ("obento ls -l disk.img@2:/etc", "List a directory in partition 2"),
    ("obento cp -a disk.img:/etc backup", "Copy a directory out of an image"),
    ("obento cp site.conf disk.img:/etc/", "Copy a file into an image"),
    ("obento build root.img --from rootfs/", "Build an ext4 image of a directory"),
    ("obento check -y disk.img", "Check a file system, and repair it"),
    ("obento mount disk.img mnt", "Mount an image without root"),
])
.see_also(&["mount(8)", "fsck(8)", "mkfs(8)", "debugfs(8)", "qemu-img(1)", "guestfish(1)"]);

/// The exit statuses of most subcommands.
pub const EXIT: Terms = &[
    ("0", "Everything succeeded."),
    ("1", "An operand failed. Some commands, such as cat and cp, also use 1 if nothing could be done."),
    ("2", "Wrong usage, or nothing could be done."),
];

/// The variables that every subcommand uses.
pub const ENVIRONMENT: Terms = &[
    ("OBENTO_READONLY", "If it is set to anything but 0, obento refuses to change images."),
    ("OBENTO_LINUX", "The kernel of the kernel engine; the default is linux.uml on PATH."),
    ("TMPDIR", "The directory for temporary files; the default is /tmp."),
    ("NO_COLOR", "If it is not empty, output has no colours unless --color requests them."),
];

/// The variable of commands that read or show times.
pub const TZ: (&str, &str) = ("TZ", "The time zone in which times are read and shown.");
/// The variable of commands that list names.
pub const LS_COLORS: (&str, &str) = ("LS_COLORS", "The colours of names, as dircolors(1) prints them.");
/// The variable of commands whose output may be longer than the terminal.
pub const PAGER: (&str, &str) = (
    "PAGER",
    "The program that shows output that is longer than the terminal; the default is less. If it is empty or cat, no pager is used.",
);
/// The variable of commands that create volumes.
pub const EPOCH: (&str, &str) = (
    "SOURCE_DATE_EPOCH",
    "The time that is written, in seconds since 1970, so that builds are reproducible.",
);
/// The variables of commands that keep backups.
pub const BACKUP: Terms = &[
    ("VERSION_CONTROL", "The kind of backup for -b, and for --backup without CONTROL."),
    ("SIMPLE_BACKUP_SUFFIX", "The suffix of simple backups without -S; the default is ~."),
];

/// Returns the page of the subcommand in `groups` whose words after `obento` are `path`.
pub fn page(groups: Groups, path: &str) -> Option<&'static Page> {
    let mut words = path.split(' ');
    let first = words.next()?;
    let (_, page) = *groups.iter().flat_map(|(_, pages)| *pages).find(|(name, _)| *name == first)?;
    words.try_fold(page, |page, word| Some(&page.subcommands.iter().find(|(name, _)| *name == word)?.1))
}
