//! Reports of options that a format refuses, for the commands that create volumes.

use obento::driver::{Format, FormatError};

use crate::cause::Cause;
use crate::parse::similar::similar;
use crate::report::{Report, subject};

/// The options of a command that creates a volume.
pub trait GivenOptions {
    /// Returns the option that selects `setting`, if the option is given.
    fn option_of(&self, setting: &str) -> Option<&'static str>;

    /// The settings of `-E` that the command itself handles.
    fn host_settings(&self) -> &'static [&'static str];
}

/// A format, and the options that it refuses.
pub struct RefusedOptions<'a> {
    pub format: &'a dyn Format,
    pub options: &'a dyn GivenOptions,
}

impl RefusedOptions<'_> {
    /// Returns the report of `error`, with the option that was given and the next step. `report` creates a report from
    /// a cause.
    pub fn report(&self, error: &FormatError, report: &dyn Fn(&dyn Cause) -> Report) -> Report {
        let fs_type = self.format.types().first().copied().unwrap_or_default();
        match error {
            FormatError::Needs { what, needs } => {
                let (what, help) = self.lacking(what, needs);
                report(&format_args!("{what} requires {needs}")).help(help)
            }
            FormatError::BadValue { name, value, allowed }
                if value.is_empty() && self.options.option_of(name).is_none() =>
            {
                report(&format_args!("{name} requires a value"))
                    .help(format!("write {name}=VALUE; the value is {allowed}"))
            }
            FormatError::BadValue { name, value, allowed } => {
                let option = self.options.option_of(name).unwrap_or(name);
                report(&format_args!("invalid value {} for {option}", subject(value)))
                    .help(format!("use {allowed}"))
            }
            FormatError::GroupTables { .. } => {
                report(error).help("use a smaller size, or larger blocks: -b 4096")
            }
            FormatError::UnknownFeature { .. } if self.is_ext() => {
                report(error).help("ext4(5) lists the features")
            }
            FormatError::UnknownFeature { .. } => {
                report(&format_args!("-O is not available for {fs_type}")).help("omit -O")
            }
            FormatError::UnknownSetting { name } => self.unknown_setting(error, name, report),
            FormatError::TooSmall { .. } if self.is_ext() => {
                report(error).help("use a larger size, or fewer features or inodes, which also need space")
            }
            FormatError::TooSmall { .. } => report(error).help("use a larger size"),
            _ => report(error),
        }
    }

    fn unknown_setting(
        &self,
        error: &FormatError,
        name: &str,
        report: &dyn Fn(&dyn Cause) -> Report,
    ) -> Report {
        let fs_type = self.format.types().first().copied().unwrap_or_default();
        match (name, self.options.option_of(name)) {
            // The label is not a setting of any format, so `-E` selects it.
            ("label", _) => report(&"-E label= is not available").help("use -L to set the label"),
            // `-U` with a volume ID sets it, on any type.
            ("volume_id", _) => report(&format_args!("{fs_type} has a UUID, and no volume ID"))
                .help("write a UUID such as 01234567-89ab-cdef-0123-456789abcdef, or random"),
            ("cluster_size", Some(option)) if self.format.types().contains(&"vfat") => {
                report(&format_args!("{option} is not available for {fs_type}"))
                    .help("use -b to set the cluster size")
            }
            (_, Some(option)) => report(&format_args!("{option} is not available for {fs_type}"))
                .help(format!("omit {option}")),
            (_, None) => {
                let known = self.format.settings().iter().map(|setting| setting.name);
                let known: Vec<&str> = known.chain(self.options.host_settings().iter().copied()).collect();
                match similar(name, known.iter().copied()) {
                    Some(known) => report(error).help(format!("did you mean '{known}'?")),
                    None if self.is_ext() => {
                        report(error).help("'obento help mkfs' lists the settings below --extended")
                    }
                    None => {
                        report(error).help(format!("supported settings of {fs_type}: {}", known.join(", ")))
                    }
                }
            }
        }
    }

    fn is_ext(&self) -> bool {
        self.format.types().contains(&"ext4")
    }

    /// Returns the name of `what` for the user, and the next step if `what` requires `needs`.
    fn lacking(&self, what: &str, needs: &str) -> (String, String) {
        let is_feature = |name: &str| !name.contains(' ') && self.is_ext();
        let is_setting = self.format.settings().iter().any(|setting| setting.name == what);
        let add = if is_feature(needs) { format!("add -O {needs}") } else { format!("use {needs}") };
        match self.options.option_of(what) {
            Some(option) => (option.to_owned(), format!("{add}, or omit {option}")),
            None if is_feature(what) && !is_setting => {
                (what.to_owned(), format!("{add}, or remove {what}: -O ^{what}"))
            }
            None => (what.to_owned(), format!("{add}, or omit {what}")),
        }
    }
}

/// Returns the report of `error`, which keys of a layout file caused.
pub fn by_layout(error: &FormatError, report: &dyn Fn(&dyn Cause) -> Report) -> Report {
    match error {
        FormatError::Needs { what, needs } => report(error).help(format!("use {needs}, or omit {what}")),
        FormatError::BadValue { name, value, allowed } => {
            report(&format_args!("invalid value {} for {name}", subject(value)))
                .help(format!("use {allowed}"))
        }
        FormatError::UnknownFeature { .. } => report(error).help(
            "ext2, ext3 and ext4 have the features that ext4(5) lists; other types have no features to select",
        ),
        FormatError::UnknownSetting { .. } => {
            report(error).help("'obento mkfs --help' lists the settings of each type")
        }
        _ => report(error),
    }
}
