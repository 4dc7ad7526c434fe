//! `--backing`: a qcow2 image that stores only changes of another image.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use obento::Image;
use obento::address::{HostEntry, snapshot_of};
use obento::convert::{BACKING_NAME_MAX, Backing, ConvertFormat, create_overlay};
use obento::driver::Access;
use obento::host::{FileId, Publish};

use super::{Args, create, report};
use crate::context::Context;
use crate::open;
use crate::output::Outcome;
use crate::report::{Report, subject};

/// Creates OUT, which refers to IN.
pub fn run(args: &Args, format: ConvertFormat, context: &Context) -> Outcome {
    let shown = args.out.as_os_str().as_bytes();
    let ConvertFormat::Qcow2 { version, .. } = format else {
        let report = Report::on("cannot convert to", shown, "only qcow2 images have backing files");
        return Err(report.help("name the format: --format qcow2").into());
    };
    let base = base(args, context)?;
    let name = stored_name(args, &base)?;
    let is_early = open::prepare([&args.source], open::BareOperand::Image, Access::ReadOnly, context);
    let early = if is_early { Some(create(args, context)?) } else { None };
    let image = context.image(&base)?;
    if FileId::of_path(&args.out).is_some_and(|out| context.host_files().contains(&out)) {
        let report = refused(args.source.as_bytes(), "it refers to OUT, and the new image would replace OUT");
        return Err(report.help("choose another name for OUT").into());
    }
    let backing = Backing { name: name.as_os_str().as_bytes(), format: format_of(args, &image)? };
    let target = match early {
        Some(target) => target,
        None => create(args, context)?,
    };
    let start = Instant::now();
    let publish = if args.force { Publish::Replace } else { Publish::Keep };
    let created = create_overlay(&backing, image.device().len(), target, &args.out, (version, publish));
    let created = created.map_err(|failure| args.failed(failure))?;
    report(args, &(&created).into(), None, start.elapsed(), context)
}

/// Returns the file of IN. Fails if IN is a part of an image, or the same file as OUT.
fn base(args: &Args, context: &Context) -> Result<PathBuf, Report> {
    let address = open::address(&args.source, context)?;
    let is_part = address.part.is_some()
        || address.place.is_some()
        || address.server().is_some()
        || snapshot_of(&address.image, &HostEntry::look_up).is_some();
    let wrong = |why: &str| refused(args.source.as_bytes(), why);
    if is_part {
        return Err(wrong("only a whole image file can be a backing file").help("name the image file"));
    }
    if FileId::of_path(&args.out).is_some_and(|out| FileId::of_path(&address.image) == Some(out)) {
        return Err(wrong("the new image would replace it").help("choose another name for OUT"));
    }
    Ok(address.image)
}

/// Returns the name of IN in OUT: as given, and with `./` before a name that qemu would take for a protocol.
///
/// # Errors
///
/// The name leads to another file from the folder of OUT, or is too long.
fn stored_name(args: &Args, base: &Path) -> Result<PathBuf, Report> {
    let wrong = |why: &str| refused(base.as_os_str().as_bytes(), why);
    let folder = args.out.parent().unwrap_or(Path::new(""));
    let there = FileId::of_path(&folder.join(base));
    if there.is_none() || there != FileId::of_path(base) {
        let report =
            wrong("a relative name is resolved in the directory of OUT, and there it does not refer to IN");
        return Err(report.help("use an absolute path for IN"));
    }
    let has_colon = match base.components().next() {
        Some(Component::Normal(first)) => first.as_bytes().contains(&b':'),
        _ => false,
    };
    let name = if has_colon { Path::new(".").join(base) } else { base.to_owned() };
    if name.as_os_str().len() > BACKING_NAME_MAX {
        return Err(wrong("the path is longer than 1023 bytes, the maximum of the format")
            .help("use a shorter path, such as one relative to the directory of OUT"));
    }
    Ok(name)
}

/// Returns the error for a backing file that cannot be used.
fn refused(file: &[u8], why: &str) -> Report {
    Report::new(format!("cannot use {} as a backing file", subject(file)), why)
}

/// Returns the format of IN. Fails if it cannot be read through a qcow2 image.
fn format_of(args: &Args, image: &Image) -> Result<&'static str, Report> {
    match image.layers() {
        [] => Ok("raw"),
        ["qcow2"] => Ok("qcow2"),
        layers => {
            let cause = format!("the format is {}", layers.join(", "));
            Err(refused(args.source.as_bytes(), &cause)
                .help("backing files are raw or qcow2: convert IN first"))
        }
    }
}
