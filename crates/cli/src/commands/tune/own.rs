//! Changing settings of types that only the kernel engine opens: by their own programs.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::Arc;

use obento::Image;
use obento::address::PartSelector;
use obento::block::BlockDevice;
use obento::driver::{Probe, TuneOptions};
use obento::engine::tools::{ArgumentOrder, Setter};
use obento::engine::types::Type;
use obento::host::path_of_open;
use obento::image::ImageFile;
use obento::text::uuid_text;

use super::ACTION;
use crate::cause::Cause;
use crate::commands::mkfs::own::on;
use crate::context::Context;
use crate::own::{Program, UnnamedFile};
use crate::report::{Report, printable};

/// Returns whether a program may be started: one that changes settings of one of the engine's types is installed. The
/// type is known only when the image is decoded.
pub fn may_start(context: &Context) -> bool {
    let registry = context.registry();
    let is_there = |kind: &Type| {
        let setters = kind.tuner.map(|tuner| [tuner.label, tuner.uuid]);
        setters.into_iter().flatten().flatten().any(|setter| setter.tool.find().is_some())
    };
    match context.options().fs_type.as_deref() {
        Some(name) => registry.engine_type(name).is_some_and(is_there),
        None => registry.engine_types().iter().any(is_there),
    }
}

/// A volume of a type that has its own programs.
pub struct TunedVolume<'a> {
    kind: &'static Type,
    device: Arc<dyn BlockDevice>,
    /// The open image, if the volume is a complete host file.
    file: Option<OwnedFd>,
    shown: &'a [u8],
    context: &'a Context,
}

/// A setting with the program that changes it.
struct Change {
    option: &'static str,
    program: Program,
    is_there: Box<dyn Fn(&Probe) -> bool>,
}

impl<'a> TunedVolume<'a> {
    /// Returns the volume that `part` of `image` selects, if its type has no driver of obento but its own programs.
    pub fn of(
        image: &'a Image,
        part: Option<&PartSelector>,
        shown: &'a [u8],
        context: &'a Context,
    ) -> Option<Self> {
        let (device, content) = image.volume_bytes(part).ok()?;
        let kind = context.registry().engine_type(content.probe()?.fs_type)?;
        kind.tuner?;
        let is_whole = device.len() == image.device().len() && image.layers().is_empty();
        let file = ImageFile::file_of(&*device).ok().filter(|_| is_whole);
        Some(Self { kind, device, file, shown, context })
    }

    /// Changes the settings. Fails for a setting that no program of the type changes, and for a value that the
    /// program does not support. Nothing was then changed. Also fails if a program is not installed, or fails. The
    /// error then contains the settings that were changed before.
    pub fn tune(&self, options: &TuneOptions, given: &[&'static str]) -> Result<(), Report> {
        let changes = self.changes(options, given)?;
        let failed = |cause: &dyn Cause| Report::on(ACTION, self.shown, cause);
        let copy = match self.file {
            Some(_) => None,
            None => Some(UnnamedFile::copy_of(&*self.device).map_err(|error| failed(&error))?),
        };
        let path = copy.as_ref().map(UnnamedFile::path);
        // The path of the image can lead to another file by now.
        let path = path.or_else(|| self.file.as_ref().map(path_of_open)).unwrap_or_default();
        let of_a_copy = if copy.is_some() { ", on a copy that is written back" } else { "" };
        let mut result = changes.iter().try_for_each(|Change { program, .. }| {
            let line = program.line(OsStr::from_bytes(self.shown));
            self.context.note(self.shown, format!("running '{line}'{of_a_copy}"));
            on(program, &path)
        });
        if let (Some(copy), Ok(())) = (copy, &result) {
            result = copy.put_back(&*self.device).map_err(|error| error.to_string());
        }
        result = result.and_then(|()| self.device.flush().map_err(|error| error.to_string()));
        let name = self.kind.names.first().copied().unwrap_or_default();
        let driver = self.context.registry().find(name);
        let probe = driver.map_or(Ok(None), |driver| driver.probe(&*self.device));
        let probe = probe.map_err(|error| failed(&error))?.unwrap_or_default();
        // Some programs end with 0 although they changed nothing.
        let unchanged = changes.iter().find(|change| !(change.is_there)(&probe));
        let unchanged =
            unchanged.map(|change| format!("{} did not change the setting", change.program.name()));
        match result.err().or(unchanged) {
            Some(cause) => Err(failed(&format!("{cause}{}", outcome(&changes, &probe)))),
            None => Ok(()),
        }
    }

    fn changes(&self, options: &TuneOptions, given: &[&'static str]) -> Result<Vec<Change>, Report> {
        let tuner = self.kind.tuner.as_ref();
        let name = self.kind.names.first().copied().unwrap_or_default().to_uppercase();
        let refused = |option: &str| {
            let cause = format!("no program changes the setting {option} of {name} volumes");
            Report::on(ACTION, self.shown, cause)
        };
        if let Some(option) = given.first() {
            return Err(refused(option)
                .help(format!("only ext2, ext3 and ext4 have this setting; for {name}, use -L or -U")));
        }
        let mut changes = Vec::new();
        if let Some(label) = options.label.clone() {
            let setter = tuner.and_then(|tuner| tuner.label).ok_or_else(|| refused("-L"))?;
            let program = self.program(&setter, OsString::from_vec(label.clone()), "-L")?;
            let is_there = Box::new(move |probe: &Probe| probe.label == label);
            changes.push(Change { option: "-L", program, is_there });
        }
        if options.serial.is_some() {
            return Err(Report::on(ACTION, self.shown, format!("{name} has a UUID, and no volume ID"))
                .help("write a UUID such as 01234567-89ab-cdef-0123-456789abcdef, or random"));
        }
        if let Some(uuid) = options.uuid {
            let setter = tuner.and_then(|tuner| tuner.uuid).ok_or_else(|| refused("-U"))?;
            if uuid == [0; 16] {
                return Err(Report::on(ACTION, self.shown, format!("{name} volumes always have a UUID"))
                    .help("use -U random for a new UUID"));
            }
            let program = self.program(&setter, uuid_text(uuid).into(), "-U")?;
            let is_there = Box::new(move |probe: &Probe| probe.uuid == Some(uuid));
            changes.push(Change { option: "-U", program, is_there });
        }
        Ok(changes)
    }

    /// Returns the program with its arguments for `value`.
    fn program(&self, setter: &Setter, value: OsString, option: &str) -> Result<Program, Report> {
        let refused = |why: String| {
            let value = printable(value.as_bytes());
            Report::on(ACTION, self.shown, format!("invalid value '{value}' for {option}: {why}"))
        };
        if value.len() > setter.max {
            return Err(refused(format!("must have at most {} bytes", setter.max)));
        }
        let is_special = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'\\');
        if !setter.quotes && value.as_bytes().iter().any(is_special) {
            let program = setter.tool.program;
            return Err(refused(format!("{program} supports no spaces, quotes or backslashes")));
        }
        let program = Program::find(setter.tool, ACTION, self.shown)?.with(setter.arguments.iter().copied());
        let mut word = OsString::from(setter.prefix);
        word.push(if value.is_empty() { OsStr::new(setter.none) } else { &value });
        Ok(match setter.order {
            ArgumentOrder::ValueImage => program.with([word]),
            ArgumentOrder::ImageValue => program.followed_by(word),
        })
    }
}

/// Returns the text that names the settings with their new values and those without, if there are several.
fn outcome(changes: &[Change], probe: &Probe) -> String {
    if changes.len() < 2 {
        return String::new();
    }
    let state = |change: &Change| {
        let is = if (change.is_there)(probe) { "changed" } else { "not changed" };
        format!("; {} is {is}", change.option)
    };
    changes.iter().map(state).collect()
}
