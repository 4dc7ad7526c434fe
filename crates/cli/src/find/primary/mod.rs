//! Single tests, actions and options: their names and what they take. The options are here, `question` has the tests
//! and `action` the actions.

mod action;
mod question;

use std::ffi::OsStr;

use super::expression::{DirectoryOrder, Expr};
use super::parse::{Parser, Result, SyntaxError, always};
use super::regexp;
use crate::parse::similar::similar;

/// Every name, for suggestions.
const NAMES: &str = "-a -amin -and -anewer -atime -cmin -cnewer -ctime -d -daystart -depth -empty -exec -execdir \
    -executable -false -fls -follow -fprint -fprint0 -fprintf -fstype -gid -group -ilname -iname -inum -ipath -iregex \
    -iwholename -links -lname -ls -maxdepth -mindepth -mmin -mount -mtime -name -newer -newermt -nogroup \
    -not -nouser -nowarn -o -ok -okdir -or -path -perm -print -print0 -printf -prune -quit -readable -regex \
    -regextype -samefile -size -true -type -uid -user -warn -wholename -writable -xdev -xtype --json";

/// Parses the test, action or option `arg`, whose name has been taken.
pub(super) fn parse(parser: &mut Parser<'_>, arg: &OsStr) -> Result<Expr> {
    let Some(name) = arg.to_str().filter(|name| name.starts_with('-')) else {
        return Err(parser.misplaced(arg));
    };
    if let Some(answer) = option(parser, name) {
        return answer;
    }
    parser.first_primary.get_or_insert_with(|| name.to_owned());
    let answer = question::parse(parser, name).or_else(|| action::parse(parser, name));
    answer.unwrap_or_else(|| Err(unknown(name)))
}

/// What an option, test or action answers, if it is one of the group.
type Answer = Option<Result<Expr>>;

fn argument<'a>(parser: &mut Parser<'a>, name: &str) -> Result<&'a OsStr> {
    parser.next().ok_or_else(|| SyntaxError::new(format!("{name} requires an argument")))
}

/// The argument of `name`, read by `read`; `wanted` says what it should have been.
fn read<T>(
    parser: &mut Parser<'_>,
    name: &str,
    wanted: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T> {
    let text = argument(parser, name)?;
    text.to_str()
        .and_then(read)
        .ok_or_else(|| SyntaxError::new(format!("{name} requires {wanted}, not '{}'", text.display())))
}

fn option(parser: &mut Parser<'_>, name: &str) -> Answer {
    Some(match name {
        "-maxdepth" | "-mindepth" => global(parser, name).and_then(|()| {
            let depth = read(parser, name, "a number of levels", |text| {
                text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
            })?;
            match name {
                "-maxdepth" => parser.options.max_depth = depth,
                _ => parser.options.min_depth = depth,
            }
            Ok(always(true))
        }),
        "-depth" | "-d" => global(parser, name).map(|()| {
            parser.options.order = DirectoryOrder::Post;
            always(true)
        }),
        // One image has no mounts inside it, so these hold by themselves.
        "-xdev" | "-mount" | "-noleaf" | "-ignore_readdir_race" | "-noignore_readdir_race" => {
            global(parser, name).map(|()| always(true))
        }
        "--json" => {
            parser.options.json = true;
            Ok(always(true))
        }
        "-follow" => global(parser, name).map(|()| {
            parser.options.follow = true;
            always(true)
        }),
        "-H" | "-L" | "-P" => Err(SyntaxError::new(format!("{name} must come before the first start point"))
            .help(format!("obento find {name} disk.img ..."))),
        "-daystart" => {
            let midnight = parser.world.zone().midnight(parser.world.now());
            parser.day_end = crate::find::compare::nanos(midnight) + 86_400 * 1_000_000_000;
            Ok(always(true))
        }
        "-warn" | "-nowarn" => {
            parser.warn = name == "-warn";
            Ok(always(true))
        }
        "-regextype" => regextype(parser, name),
        _ => return None,
    })
}

/// Warns of an option that holds for the whole search but stands behind a test, as if it held from there on.
fn global(parser: &mut Parser<'_>, name: &str) -> Result<()> {
    if let Some(earlier) = &parser.first_primary {
        parser.warnings.push(format!(
            "{name} after {earlier} also applies to the tests before it; write {name} before all tests"
        ));
    }
    Ok(())
}

fn regextype(parser: &mut Parser<'_>, name: &str) -> Result<Expr> {
    let known = || regexp::DIALECTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let text = argument(parser, name)?;
    let dialect = regexp::DIALECTS.iter().find(|(known, _)| text == *known);
    let (_, dialect) = dialect.ok_or_else(|| {
        SyntaxError::new(format!("{name} does not support '{}'", text.display()))
            .help(format!("use {}", known()))
    })?;
    parser.dialect = *dialect;
    Ok(always(true))
}

fn unknown(name: &str) -> SyntaxError {
    let error = SyntaxError::new(format!("find has no test or action '{name}'"));
    match similar(name, NAMES.split(' ')) {
        Some(known) => error.help(format!("did you mean '{known}'?")),
        None if name.starts_with("--") => {
            error.help("obento's own options come before the first start point")
        }
        None => error.help("run 'obento help find' to list the tests and actions"),
    }
}
