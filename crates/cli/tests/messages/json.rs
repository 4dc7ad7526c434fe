//! Output of `--json`.

use super::{folder, folder_of_images, obento};

#[test]
fn json_has_an_object_a_line() {
    let folder = folder();
    for args in [
        &["ls", "--json", "-R", "disk.img.zst"][..],
        &["stat", "--json", "disk.img.zst:/etc", "disk.img.zst:/usr/bin"],
        &["df", "--json", "disk.img.zst"],
        &["du", "--json", "-ac", "disk.img.zst:/home"],
        &["tree", "--json", "disk.img.zst"],
        &["stat", "-f", "--json", "disk.img.zst"],
        &["find", "--json", "disk.img.zst"],
        &["info", "--json", "disk.img.zst"],
        &["inspect", "super", "--json", "disk.img.zst"],
    ] {
        let output = obento(folder.path(), args);
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?}");
        for line in output.stdout.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let value: serde_json::Value = serde_json::from_slice(line).unwrap();
            assert_eq!(value["schema"], "obento/1", "{args:?}");
            assert!(value["kind"].is_string(), "{args:?}");
        }
    }
}

#[test]
fn each_command_with_json_output_prints_nothing_but_objects_one_per_line() {
    let folder = folder_of_images();
    let at = folder.path();
    std::fs::copy(self::folder().path().join("disk.img.zst"), at.join("disk.img.zst")).unwrap();
    std::fs::create_dir_all(at.join("tree/below/.hidden")).unwrap();
    std::fs::write(at.join("tree/below/file"), "line\nother\n").unwrap();
    std::fs::write(at.join("disk.toml"), "[[partition]]\ntype = \"esp\"\ncontent = \"vfat\"\n").unwrap();
    assert!(obento(at, &["build", "-q", "a.img", "--from", "tree", "--size", "8M"]).status.success());
    assert!(obento(at, &["setfattr", "-n", "user.x", "-v", "y", "a.img:/below"]).status.success());
    std::fs::write(at.join("sums"), obento(at, &["md5sum", "a.img:/below/file"]).stdout).unwrap();
    let lines = "b3sum a.img:/below/file gone.img:/x
build b.img --from tree
build d.img --disk disk.toml
check a.img
check -v -y a.img
check zeros.img
cmp -l a.img:/below/file disk.img.zst:/etc/passwd
convert -O qcow2 a.img a.qcow2
df a.img disk.img.zst
diff -r a.img:/ disk.img.zst:/
diff --bytes a.img fat.img
du -0ac a.img:/ disk.img.zst:/home
file -0 a.img:/below/file a.img:/below
find a.img disk.img.zst:/etc
getfattr -d -R a.img:/
grep -rn -C1 line a.img:/ disk.img.zst:/etc
grep -rcZ line a.img:/
grep -rL nothing a.img:/
info a.img d.img zeros.img
inspect block a.img 1
inspect dir a.img:/below
inspect group a.img 0
inspect inode a.img:/below/file
inspect journal a.img
inspect super a.img
ls -laR a.img:/ disk.img.zst:/home
ls -m --color=always a.img:/ a.img:/below
lsattr -R a.img:/ disk.img.zst:/
lsattr -aRlpv a.img:/ a.img:/below
lsattr -ad a.img:/
md5sum --check sums
md5sum --tag -z a.img:/below/file
mkfs -t ext2 c.img 4M
mkfs -n -t ext4 c.img 4M
mkfs.exfat fresh.img
mkfs.fat -v -C f.img 4096
mount --status
part mbr.img
part mbr.img add --type 0x83 --size 1M
prov a.img
recover a.img saved
resize a.img 12M
sha1sum a.img:/below/file
sha256sum a.img:/below/file
sha512sum a.img:/below/file
stat a.img:/below a.img:/gone
stat -f a.img
tree -a a.img disk.img.zst
types
undelete fat.img
wc a.img:/below/file disk.img.zst:/etc/passwd";
    std::fs::File::create(at.join("fresh.img")).unwrap().set_len(8 << 20).unwrap();
    let mut silent = Vec::new();
    for line in lines.lines() {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let args: Vec<&str> = [name, "--json"].into_iter().chain(rest.split_whitespace()).collect();
        let output = obento(at, &args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!error.contains("Usage:"), "{line}: {error}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{line}: {text}");
        if text.is_empty() {
            silent.push(line);
        }
        for object in text.lines() {
            let value: Option<serde_json::Value> = serde_json::from_str(object).ok();
            let is_object = value.is_some_and(|value| value["kind"].is_string());
            assert!(is_object, "{line}: not an object with a kind: {object:?}");
        }
    }
    // Another test may mount a volume meanwhile.
    silent.retain(|line| *line != "mount --status");
    assert_eq!(silent, ["check zeros.img", "prov a.img", "undelete fat.img"]);
    let listed = include_str!("../../src/cli.rs").split_once("const JSON: &[&str] = &[").unwrap().1;
    let listed = listed.split_once("];").unwrap().0.split('"').skip(1).step_by(2);
    for name in listed {
        let is_tried = lines.lines().any(|line| line.split(' ').next() == Some(name));
        assert!(is_tried, "no case for '{name}'");
    }
}

#[test]
fn json_is_refused_by_each_command_that_has_no_json_output() {
    let folder = folder();
    let image = "disk.img.zst";
    for args in [
        &["cat", "disk.img.zst:/etc/passwd"][..],
        &["head", "disk.img.zst:/etc/passwd"],
        &["tail", "disk.img.zst:/etc/passwd"],
        &["hexdump", "disk.img.zst:/etc/passwd"],
        &["readlink", "-f", "disk.img.zst:/etc/passwd"],
        &["getfacl", "disk.img.zst:/etc/passwd"],
        &["cp", "disk.img.zst:/etc/passwd", "copy"],
        &["export", image, "copy"],
        &["chmod", "700", "disk.img.zst:/etc"],
        &["tune", image],
        &["shell", image],
        &["man", "ls"],
        &["completions", "bash"],
    ] {
        let output = obento(folder.path(), &[args, &["--json"]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        let refused = format!("obento: '{}' has no JSON output\n  help: omit --json\n", args[0]);
        assert!(error.contains(&refused), "{args:?}: {error}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
    }
    for args in [
        &["mount", "--json", image, "."][..],
        &["build", "--json", "--print-layout", image],
        &["stat", "--json", "-c", "%n", image],
        &["stat", "--json", "--terse", image],
        &["prov", "--json", "--export", "dot", image],
    ] {
        let output = obento(folder.path(), args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("omit --json"), "{args:?}: {error}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
    }
}
