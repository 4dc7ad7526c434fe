//! Single tests, actions and options: their names and what they take.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use obento::FileKind;

use super::compare::{Compare, SizeTest, TimeTest};
use super::expression::{Action, Command, Expr, Order, Output, Owner, Stamp, Test};
use super::format::Format;
use super::parse::{Parser, Result, SyntaxError, always};
use super::pattern::{Case, Pattern};
use super::perm::PermTest;
use super::regexp;

/// Every name, for suggestions.
const NAMES: &str = "-a -amin -and -anewer -atime -cmin -cnewer -ctime -d -daystart -depth -empty -exec -executable \
    -false -fls -fprint -fprint0 -fprintf -fstype -gid -group -ilname -iname -inum -ipath -iregex \
    -iwholename -links -lname -ls -maxdepth -mindepth -mmin -mount -mtime -name -newer -newermt -nogroup \
    -not -nouser -nowarn -o -or -path -perm -print -print0 -printf -prune -quit -readable -regex \
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
    let groups = [names, numbers, times, owners, others, prints, actions];
    for group in groups {
        if let Some(answer) = group(parser, name) {
            return answer;
        }
    }
    Err(unknown(name))
}

/// What an option, test or action answers, if it is one of the group.
type Answer = Option<Result<Expr>>;

fn argument<'a>(parser: &mut Parser<'a>, name: &str) -> Result<&'a OsStr> {
    parser.next().ok_or_else(|| SyntaxError::new(format!("{name} needs an argument")))
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
        .ok_or_else(|| SyntaxError::new(format!("{name} takes {wanted}, not `{}'", text.display())))
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
            parser.options.order = Order::Post;
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
        "-follow" | "-L" => {
            Err(SyntaxError::new(format!("{name} is not supported: links inside an image are not followed"))
                .help("-xtype asks for the type of what a link leads to, and -H follows start points"))
        }
        "-daystart" => {
            let midnight = parser.world.zone().midnight(parser.world.now());
            parser.day_end = super::compare::nanos(midnight) + 86_400 * 1_000_000_000;
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
            "{name} stands after {earlier}, but holds for what comes before it too; put it before the tests"
        ));
    }
    Ok(())
}

fn regextype(parser: &mut Parser<'_>, name: &str) -> Result<Expr> {
    let known = || regexp::DIALECTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let text = argument(parser, name)?;
    let dialect = regexp::DIALECTS.iter().find(|(known, _)| text == *known);
    let (_, dialect) = dialect.ok_or_else(|| {
        SyntaxError::new(format!("{name} does not know `{}'", text.display()))
            .help(format!("it knows {}", known()))
    })?;
    parser.dialect = *dialect;
    Ok(always(true))
}

/// Tests of names.
fn names(parser: &mut Parser<'_>, name: &str) -> Answer {
    let case = if name.starts_with("-i") { Case::Insensitive } else { Case::Sensitive };
    let make: fn(Pattern) -> Test = match name {
        "-name" | "-iname" => Test::Name,
        "-path" | "-ipath" | "-wholename" | "-iwholename" => Test::Path,
        "-lname" | "-ilname" => Test::LinkName,
        "-regex" | "-iregex" => return Some(regex(parser, name, case)),
        _ => return None,
    };
    Some(argument(parser, name).map(|text| {
        parser.last_pattern = Some(name.to_owned());
        let bytes = text.as_bytes();
        if name.ends_with("name")
            && !name.contains("whole")
            && !name.contains("lname")
            && bytes.contains(&b'/')
            && bytes != b"/"
        {
            parser
                .warnings
                .push(format!("{name} {}: no name has a `/' in it; did you mean -path?", text.display()));
        }
        Expr::Test(make(Pattern::new(bytes, case)))
    }))
}

fn regex(parser: &mut Parser<'_>, name: &str, case: Case) -> Result<Expr> {
    let text = argument(parser, name)?;
    let pattern = text.to_str().ok_or_else(|| SyntaxError::new(format!("{name} takes UTF-8")))?;
    let regex = regexp::compile(pattern, parser.dialect, case)
        .map_err(|error| SyntaxError::new(format!("{name} `{pattern}': {error}")))?;
    Ok(Expr::Test(Test::Regex(regex)))
}

const NUMBER: &str = "a number (N, +N for more, -N for less)";

/// Tests of numbers.
fn numbers(parser: &mut Parser<'_>, name: &str) -> Answer {
    let make: fn(Compare) -> Test = match name {
        "-inum" => Test::Inode,
        "-links" => Test::Links,
        "-uid" => Test::UserId,
        "-gid" => Test::GroupId,
        "-size" => {
            let wanted = "a size (N, +N, -N with one of the units c w b k M G)";
            return Some(
                read(parser, name, wanted, SizeTest::parse).map(|size| Expr::Test(Test::Size(size))),
            );
        }
        "-perm" => {
            let wanted = "a mode (644, -u+w for all of its bits, /6000 for any)";
            return Some(
                read(parser, name, wanted, PermTest::parse).map(|perm| Expr::Test(Test::Permission(perm))),
            );
        }
        _ => return None,
    };
    Some(read(parser, name, NUMBER, Compare::parse).map(|count| Expr::Test(make(count))))
}

fn stamp(letter: u8) -> Option<Stamp> {
    Some(match letter {
        b'a' => Stamp::Access,
        b'B' => Stamp::Birth,
        b'c' => Stamp::Change,
        b'm' => Stamp::Modify,
        _ => return None,
    })
}

/// Tests of times.
fn times(parser: &mut Parser<'_>, name: &str) -> Answer {
    let day_end = parser.day_end;
    Some(match name.as_bytes() {
        [b'-', letter @ (b'a' | b'c' | b'm'), b't', b'i', b'm', b'e'] => {
            let days = |text: &str| TimeTest::days(text, day_end);
            read(parser, name, "a number of days (N, +N for earlier, -N for later)", days)
                .map(|test| Expr::Test(Test::Time(stamp(*letter).unwrap_or(Stamp::Modify), test)))
        }
        [b'-', letter @ (b'a' | b'c' | b'm'), b'm', b'i', b'n'] => {
            let minutes = |text: &str| TimeTest::minutes(text, day_end);
            read(parser, name, "a number of minutes (N, +N for earlier, -N for later)", minutes)
                .map(|test| Expr::Test(Test::Time(stamp(*letter).unwrap_or(Stamp::Modify), test)))
        }
        b"-newer" => newer(parser, name, Stamp::Modify, Some(Stamp::Modify)),
        b"-anewer" => newer(parser, name, Stamp::Access, Some(Stamp::Modify)),
        b"-cnewer" => newer(parser, name, Stamp::Change, Some(Stamp::Modify)),
        [b'-', b'n', b'e', b'w', b'e', b'r', x, y] => match (stamp(*x), stamp(*y)) {
            (Some(x), y @ Some(_)) => newer(parser, name, x, y),
            (Some(x), None) if *y == b't' => newer(parser, name, x, None),
            _ => return None,
        },
        _ => return None,
    })
}

/// `-newerXY`; without a `reference` stamp the argument is a date.
fn newer(parser: &mut Parser<'_>, name: &str, stamp: Stamp, reference: Option<Stamp>) -> Result<Expr> {
    let Some(reference) = reference else {
        let (zone, now) = (parser.world.zone().clone(), parser.world.now());
        let wanted = "a date (2026-01-31, '2026-01-31 12:00', @SECONDS)";
        return read(parser, name, wanted, |text| zone.parse(text, now))
            .map(|time| Expr::Test(Test::Newer(stamp, time)));
    };
    let operand = argument(parser, name)?;
    let time = parser
        .world
        .time_of(operand, reference)
        .map_err(|error| SyntaxError::new(format!("{name} {}: {error}", operand.display())))?;
    // A file without that time is older than everything, as nothing can be told from it.
    Ok(time.map_or(always(false), |time| Expr::Test(Test::Newer(stamp, time))))
}

/// Tests of owners.
fn owners(parser: &mut Parser<'_>, name: &str) -> Answer {
    let (owner, by_id): (Owner, fn(Compare) -> Test) = match name {
        "-user" => (Owner::User, Test::UserId),
        "-group" => (Owner::Group, Test::GroupId),
        "-nouser" => return Some(Ok(Expr::Test(Test::NoUser))),
        "-nogroup" => return Some(Ok(Expr::Test(Test::NoGroup))),
        _ => return None,
    };
    Some(argument(parser, name).map(|text| {
        let digits = text.to_str().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        if let Some(id) = digits.and_then(|text| text.parse().ok()) {
            return Expr::Test(by_id(Compare::Equal(id)));
        }
        parser.owners.push((owner, text.as_bytes().to_vec()));
        Expr::Test(Test::OwnedBy(owner, text.as_bytes().to_vec()))
    }))
}

/// The remaining tests.
fn others(parser: &mut Parser<'_>, name: &str) -> Answer {
    Some(match name {
        "-true" => Ok(always(true)),
        "-false" => Ok(always(false)),
        "-empty" => Ok(Expr::Test(Test::Empty)),
        // The search acts as the image's owner, who may read and write everything.
        "-readable" | "-writable" => Ok(always(true)),
        "-executable" => Ok(Expr::Test(Test::Executable)),
        "-type" => kinds(parser, name).map(|kinds| Expr::Test(Test::Type(kinds))),
        "-xtype" => kinds(parser, name).map(|kinds| Expr::Test(Test::TargetType(kinds))),
        "-fstype" => argument(parser, name).map(|text| Expr::Test(Test::FsType(text.as_bytes().to_vec()))),
        "-samefile" => argument(parser, name).and_then(|operand| {
            let file = parser.world.file(operand);
            file.map(|file| Expr::Test(Test::SameFile(file)))
                .map_err(|error| SyntaxError::new(format!("{name} {}: {error}", operand.display())))
        }),
        _ => return None,
    })
}

/// `f`, or a list `f,d,l`.
fn kinds(parser: &mut Parser<'_>, name: &str) -> Result<Vec<FileKind>> {
    let wanted = "one or several of b c d f l p s, with commas between them";
    read(parser, name, wanted, |text| {
        text.split(',')
            .map(|letter| {
                Some(match letter {
                    "f" => FileKind::Regular,
                    "d" => FileKind::Directory,
                    "l" => FileKind::Symlink,
                    "c" => FileKind::CharDevice,
                    "b" => FileKind::BlockDevice,
                    "p" => FileKind::Fifo,
                    "s" => FileKind::Socket,
                    _ => return None,
                })
            })
            .collect()
    })
}

/// Actions that write. Those whose name begins with `-f` take a host file first.
fn prints(parser: &mut Parser<'_>, name: &str) -> Answer {
    let plain = match name {
        "-fprint" => "-print",
        "-fprint0" => "-print0",
        "-fprintf" => "-printf",
        "-fls" => "-ls",
        other => other,
    };
    if !["-print", "-print0", "-printf", "-ls"].contains(&plain) {
        return None;
    }
    parser.has_action = true;
    Some(output(parser, name, plain != name).and_then(|output| {
        parser.formatted |= output == Output(0) && plain != "-print";
        Ok(Expr::Act(match plain {
            "-print" => Action::Print(output),
            "-print0" => Action::Print0(output),
            "-ls" => Action::Ls(output),
            _ => {
                let text = argument(parser, name)?;
                let format = Format::parse(text.as_bytes(), &mut parser.warnings)
                    .map_err(|error| SyntaxError::new(format!("{name}: {error}")))?;
                Action::Printf(output, format)
            }
        }))
    }))
}

/// Standard output, or the host file that is the next argument; the same name is the same file.
fn output(parser: &mut Parser<'_>, name: &str, to_file: bool) -> Result<Output> {
    if !to_file {
        return Ok(Output(0));
    }
    let path = argument(parser, name)?;
    let known = parser.outputs.iter().position(|known| known == path);
    let index = known.unwrap_or_else(|| {
        parser.outputs.push(path.to_owned());
        parser.outputs.len() - 1
    });
    Ok(Output(index + 1))
}

/// Actions that do something else.
fn actions(parser: &mut Parser<'_>, name: &str) -> Answer {
    Some(match name {
        "-prune" => Ok(Expr::Act(Action::Prune)),
        "-quit" => Ok(Expr::Act(Action::Quit)),
        "-exec" => {
            parser.has_action = true;
            exec(parser)
        }
        "-delete" => Err(SyntaxError::new("-delete changes the image, and obento only reads images so far")),
        "-execdir" | "-okdir" => {
            Err(SyntaxError::new(format!("{name} has no directory to run in: the files lie in an image"))
                .help("-exec runs a command on a temporary copy of each file"))
        }
        "-ok" => Err(SyntaxError::new("-ok is not supported")
            .help("list the files with -print0, and ask with xargs -0 -p")),
        _ => return None,
    })
}

/// `-exec words ;` or `-exec words {} +`.
fn exec(parser: &mut Parser<'_>) -> Result<Expr> {
    let mut words: Vec<OsString> = Vec::new();
    let batched = loop {
        let word = parser.next().ok_or_else(|| {
            SyntaxError::new("-exec does not end")
                .help("end the command with `;' (in most shells \\;) or with {} +")
        })?;
        match word.as_bytes() {
            b";" => break false,
            b"+" if words.last().is_some_and(|last| last == "{}") => break true,
            _ => words.push(word.to_owned()),
        }
    };
    let places = words.iter().filter(|word| word.as_bytes().windows(2).any(|pair| pair == b"{}")).count();
    if words.is_empty() || (batched && words.len() == 1) {
        return Err(SyntaxError::new("-exec needs a command"));
    }
    if batched && places != 1 {
        return Err(SyntaxError::new("-exec ... + takes {} once, as the last word"));
    }
    parser.commands.push(Command { words, batched });
    Ok(Expr::Act(Action::Exec(parser.commands.len() - 1)))
}

fn unknown(name: &str) -> SyntaxError {
    let error = SyntaxError::new(format!("find has no test or action `{name}'"));
    let nearest = NAMES.split(' ').map(|known| (distance(name, known), known)).min();
    match nearest {
        Some((distance, known)) if distance <= 2 && distance < name.len() - 1 => {
            error.help(format!("did you mean {known}?"))
        }
        _ if name.starts_with("--") => error.help("obento's own options come before the first start point"),
        _ => error,
    }
}

/// Levenshtein's distance of two short words.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
