//! Tests: questions about one file.

use std::os::unix::ffi::OsStrExt;

use obento::base::FileKind;
use obento::pattern::{Case, Pattern};

use super::{Answer, argument, read};
use crate::find::compare::{Compare, SizeTest, TimeTest};
use crate::find::expression::{Expr, Owner, Test, TimeField};
use crate::find::parse::{Parser, Result, SyntaxError, always};
use crate::find::perm::PermTest;
use crate::find::regexp;

/// The test `name`, if it is one.
pub(super) fn parse(parser: &mut Parser<'_>, name: &str) -> Answer {
    let groups = [names, numbers, times, owners, others];
    groups.into_iter().find_map(|group| group(parser, name))
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
            parser.warnings.push(format!(
                "{name} {}: a name never contains '/'; use -path to match a path",
                text.display()
            ));
        }
        Expr::Test(make(Pattern::new(bytes, case)))
    }))
}

fn regex(parser: &mut Parser<'_>, name: &str, case: Case) -> Result<Expr> {
    let text = argument(parser, name)?;
    let pattern = text.to_str().ok_or_else(|| SyntaxError::new(format!("{name} requires text in UTF-8")))?;
    let regex = regexp::compile(pattern, parser.dialect, case)
        .map_err(|error| SyntaxError::new(format!("{name} '{pattern}': {error}")))?;
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
            let wanted = "a size (N, +N or -N, optionally with one of the units c w b k M G)";
            return Some(
                read(parser, name, wanted, SizeTest::parse).map(|size| Expr::Test(Test::Size(size))),
            );
        }
        "-perm" => {
            let wanted = "a mode (644 for exactly these bits, -u+w for at least these, /6000 for any)";
            return Some(
                read(parser, name, wanted, PermTest::parse).map(|perm| Expr::Test(Test::Permission(perm))),
            );
        }
        _ => return None,
    };
    Some(read(parser, name, NUMBER, Compare::parse).map(|count| Expr::Test(make(count))))
}

fn stamp(letter: u8) -> Option<TimeField> {
    Some(match letter {
        b'a' => TimeField::Access,
        b'B' => TimeField::Birth,
        b'c' => TimeField::Change,
        b'm' => TimeField::Modify,
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
                .map(|test| Expr::Test(Test::Time(stamp(*letter).unwrap_or(TimeField::Modify), test)))
        }
        [b'-', letter @ (b'a' | b'c' | b'm'), b'm', b'i', b'n'] => {
            let minutes = |text: &str| TimeTest::minutes(text, day_end);
            read(parser, name, "a number of minutes (N, +N for earlier, -N for later)", minutes)
                .map(|test| Expr::Test(Test::Time(stamp(*letter).unwrap_or(TimeField::Modify), test)))
        }
        b"-newer" => newer(parser, name, TimeField::Modify, Some(TimeField::Modify)),
        b"-anewer" => newer(parser, name, TimeField::Access, Some(TimeField::Modify)),
        b"-cnewer" => newer(parser, name, TimeField::Change, Some(TimeField::Modify)),
        [b'-', b'n', b'e', b'w', b'e', b'r', x, y] => match (stamp(*x), stamp(*y)) {
            (Some(x), y @ Some(_)) => newer(parser, name, x, y),
            (Some(x), None) if *y == b't' => newer(parser, name, x, None),
            _ => return None,
        },
        _ => return None,
    })
}

/// `-newerXY`; without a `reference` stamp the argument is a date.
fn newer(
    parser: &mut Parser<'_>,
    name: &str,
    stamp: TimeField,
    reference: Option<TimeField>,
) -> Result<Expr> {
    let Some(reference) = reference else {
        let (zone, now) = (parser.world.zone().clone(), parser.world.now());
        let wanted = "a date (2026-01-31, '2026-01-31 12:00', @SECONDS)";
        return read(parser, name, wanted, |text| zone.parse(text, now))
            .map(|time| Expr::Test(Test::Newer(stamp, time)));
    };
    let operand = argument(parser, name)?;
    let time = parser.world.time_of(operand, reference).map_err(|error| {
        SyntaxError::new(format!("{name} cannot read the times of '{}': {error}", operand.display()))
    })?;
    // A file without that time counts as older than every other file.
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
    let wanted = "one or several of b c d f l p s, separated by commas";
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
