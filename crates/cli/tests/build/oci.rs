//! Images of containers: archives of them, the promises of their descriptors, and remains of AUFS in layers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use obento_testkit::oracle::{Oracle, call, program, require};
use tar::EntryType;

use super::{Bench, text};

/// A path, a type, a link target, and the bytes.
type Member<'m> = (&'m str, EntryType, &'m str, &'m str);

fn layer(members: &[Member<'_>]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, kind, link, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_mtime(1_600_000_000);
        header.set_entry_type(*kind);
        header.set_size(bytes.len() as u64);
        match kind {
            EntryType::Link | EntryType::Symlink => tar.append_link(&mut header, path, link).unwrap(),
            _ => tar.append_data(&mut header, path, bytes.as_bytes()).unwrap(),
        }
    }
    tar.into_inner().unwrap()
}

fn file<'m>(path: &'m str, bytes: &'m str) -> Member<'m> {
    (path, EntryType::Regular, "", bytes)
}

fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A layout in a folder, to which blobs are added.
struct Layout(PathBuf);

impl Layout {
    fn new(path: PathBuf) -> Self {
        fs::create_dir_all(path.join("blobs/sha256")).unwrap();
        fs::write(path.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}").unwrap();
        Self(path)
    }

    /// Adds a blob; returns its descriptor.
    fn blob(&self, kind: &str, bytes: impl AsRef<[u8]>) -> String {
        let bytes = bytes.as_ref();
        let digest = digest(bytes);
        fs::write(self.0.join("blobs/sha256").join(&digest), bytes).unwrap();
        format!("{{\"mediaType\":\"{kind}\",\"digest\":\"sha256:{digest}\",\"size\":{}}}", bytes.len())
    }

    fn index(&self, manifests: &str) {
        fs::write(self.0.join("index.json"), format!("{{\"schemaVersion\":2,\"manifests\":[{manifests}]}}"))
            .unwrap();
    }

    /// Returns the descriptor of a manifest with these layers.
    fn manifest(&self, diff_ids: &[String], layers: &[String]) -> String {
        let ids: Vec<String> = diff_ids.iter().map(|id| format!("\"sha256:{id}\"")).collect();
        let config = format!("{{\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[{}]}}}}", ids.join(","));
        let config = self.blob(CONFIG, config);
        self.blob(MANIFEST, format!("{{\"config\":{config},\"layers\":[{}]}}", layers.join(",")))
    }
}

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const GZIPPED: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn gzipped(bytes: &[u8], folder: &Path) -> Vec<u8> {
    let path = folder.join("to-gzip");
    fs::write(&path, bytes).unwrap();
    call("gzip", ["-cn".as_ref(), path.as_os_str()]).unwrap().stdout
}

/// Returns the files of an image with their bytes.
fn files(bench: &Bench, image: &str) -> Vec<String> {
    let found = bench.run(&format!("find {image}:/ -not -name lost+found -printf %P=%n\\n"), 0).0;
    found.lines().filter(|line| !line.starts_with('=')).map(str::to_owned).collect()
}

#[test]
fn an_image_in_an_archive_is_read_as_its_directory_is() {
    if !require(&[Oracle::Program("tar"), Oracle::Program("gzip")]) {
        return;
    }
    let bench = Bench::new();
    let layout = Layout::new(bench.path("image"));
    let layers = [layer(&[file("a", "1"), file("b", "2")]), layer(&[file(".wh.a", ""), file("c", "3")])];
    let ids = [digest(&layers[0]), digest(&layers[1])];
    let packed = gzipped(&layers[1], &bench.path(""));
    let descriptors = [layout.blob(LAYER, &layers[0]), layout.blob(GZIPPED, packed)];
    layout.index(&layout.manifest(&ids, &descriptors));
    // The same in the format of old `docker save`: a directory for each layer, and links for equal layers.
    let saved = bench.path("saved");
    for (at, bytes) in layers.iter().enumerate() {
        fs::create_dir_all(saved.join(format!("{at}"))).unwrap();
        fs::write(saved.join(format!("{at}/layer.tar")), bytes).unwrap();
    }
    fs::create_dir(saved.join("again")).unwrap();
    std::os::unix::fs::symlink("../0/layer.tar", saved.join("again/layer.tar")).unwrap();
    let config = format!("{{\"rootfs\":{{\"diff_ids\":[\"sha256:{}\",\"sha256:{}\"]}}}}", ids[0], ids[1]);
    fs::write(saved.join("config.json"), config).unwrap();
    let manifest = "[{\"Config\":\"config.json\",\"RepoTags\":[\"box:1\"],\"Layers\":[\"again/layer.tar\",\"1/layer.tar\"]}]";
    fs::write(saved.join("manifest.json"), manifest).unwrap();
    for name in ["image", "saved"] {
        let (folder, tar) = (bench.path(name), bench.path(&format!("{name}.tar")));
        let line =
            ["-c".as_ref(), "-f".as_ref(), tar.as_os_str(), "-C".as_ref(), folder.as_os_str(), ".".as_ref()];
        call("tar", line).unwrap();
        call("gzip", ["-k".as_ref(), tar.as_os_str()]).unwrap();
    }
    for source in ["image", "image.tar", "image.tar.gz", "saved", "saved.tar", "saved.tar.gz"] {
        bench.run(&format!("build -F -q -t ext2 disk.img --from oci:{source}"), 0);
        assert_eq!(files(&bench, "disk.img"), ["b=1", "c=1"], "{source}");
        assert_eq!(bench.run("cat disk.img:/b disk.img:/c", 0).0, "23", "{source}");
        if require(&[Oracle::Program("e2fsck")]) {
            bench.fsck("disk.img");
        }
    }
    fs::write(bench.path("words"), b"hello".repeat(300)).unwrap();
    assert!(bench.run("build no.img --from oci:words", 2).1.contains("not a tar archive"));
    let limited = bench.run("build no.img --from oci:image.tar.gz --max-unpacked 4k", 2).1;
    assert!(limited.contains("exceed the limit of 4096 bytes\n  help: use --max-unpacked SIZE"), "{limited}");
}

#[test]
fn the_digests_of_an_image_are_checked() {
    let bench = Bench::new();
    let layout = Layout::new(bench.path("image"));
    let (tar, other) = (layer(&[file("a", "1")]), layer(&[file("b", "1")]));
    let (id, descriptor) = ([digest(&tar)], [layout.blob(LAYER, &tar)]);
    let sound = layout.manifest(&id, &descriptor);
    let typed = |kind: &str| sound.replace(MANIFEST, kind);
    let with = |kind: &str| layout.manifest(&id, &[layout.blob(kind, &tar)]);
    let attestation = format!(
        "{},\"annotations\":{{\"vnd.docker.reference.type\":\"attestation-manifest\"}}}}",
        sound.trim_end_matches('}')
    );
    for (index, words) in [
        (layout.manifest(&[digest(&other)], &descriptor), "the uncompressed data has the digest sha256:"),
        (
            layout.manifest(&[], &descriptor),
            "the manifest and the configuration disagree on the number of layers: 1 and 0",
        ),
        (
            with("application/vnd.oci.image.layer.v1.tar+encrypted"),
            "+encrypted', but must be a layer of a file system",
        ),
        (with(CONFIG), "but must be a layer of a file system"),
        (typed(INDEX), "a blob is a manifest of an image, but its descriptor has another media type"),
        (typed("text/plain"), "a blob has the media type 'text/plain', but must be a manifest of an image"),
        (sound.replace("\"size\":", "\"size\":1"), "bytes, but the image requires 1"),
        (
            layout.blob(MANIFEST, "{\"layers\":[],\"manifests\":[]}"),
            "ambiguous: a blob is both an index and a manifest",
        ),
        (
            layout.blob(MANIFEST, format!("{{\"mediaType\":\"{INDEX}\",\"layers\":[]}}")),
            "but its descriptor has another media type",
        ),
        (
            layout.blob(MANIFEST, format!("{{\"layers\":[{}]}}", vec!["{}"; 1001].join(","))),
            "more than 1000 layers",
        ),
        (layout.blob(MANIFEST, " ".repeat(5 << 20)), "and the maximum is 4194304"),
        (attestation.clone(), "the index lists no image"),
    ] {
        layout.index(&index);
        let (_, said) = bench.run("build disk.img --from image", 2);
        assert!(said.contains(words), "{index}: {said}");
    }
    // BuildKit adds attestations to the image.
    layout.index(&format!("{sound},{attestation}"));
    bench.run("build -q -t ext2 disk.img --from image", 0);
    assert_eq!(files(&bench, "disk.img"), ["a=1"]);
}

#[test]
fn a_selection_that_no_image_has_is_an_error_also_if_there_is_one_image() {
    let bench = Bench::new();
    let layout = Layout::new(bench.path("image"));
    let tar = layer(&[file("a", "1")]);
    let sound = layout.manifest(&[digest(&tar)], &[layout.blob(LAYER, &tar)]);
    let id = sound.split('"').find(|word| word.starts_with("sha256:")).unwrap();
    let named = |descriptor: &str, more: &str| format!("{},{more}}}", descriptor.trim_end_matches('}'));
    let tag = |name: &str| format!("\"annotations\":{{\"org.opencontainers.image.ref.name\":\"{name}\"}}");
    let platform = named(&sound, "\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\"}");
    let nested = layout.blob(INDEX, format!("{{\"manifests\":[{platform}]}}"));
    let other = format!("sha256:{}", "a".repeat(64));
    for (index, good) in
        [(named(&sound, &tag("v1")), ["v1", id]), (named(&nested, &tag("v1")), ["v1", "linux/arm64"])]
    {
        layout.index(&index);
        for image in [&*other, "v2", "linux/amd64"] {
            let (_, said) = bench.run(&format!("build -F disk.img --from image --image {image}"), 2);
            assert!(
                said.contains(&format!("no image is named '{image}'\n  help: use one of v1, ")),
                "{said}"
            );
        }
        for image in good {
            bench.run(&format!("build -F -q -t ext2 disk.img --from image --image {image}"), 0);
            assert_eq!(files(&bench, "disk.img"), ["a=1"]);
        }
    }
    // The output of `docker save`.
    fs::write(bench.path("image/layer.tar"), &tar).unwrap();
    fs::write(bench.path("image/config.json"), "{}").unwrap();
    let saved = "[{\"Config\":\"config.json\",\"RepoTags\":[\"box:1\"],\"Layers\":[\"layer.tar\"]}]";
    fs::write(bench.path("image/manifest.json"), saved).unwrap();
    fs::remove_file(bench.path("image/index.json")).unwrap();
    let (_, said) = bench.run("build -F disk.img --from oci:image --image box:2", 2);
    assert!(said.contains("no image is named 'box:2'\n  help: use one of box:1"), "{said}");
    bench.run("build -F -q -t ext2 disk.img --from oci:image --image box:1", 0);
}

#[test]
fn the_layers_of_an_image_share_one_limit() {
    if !require(&[Oracle::Program("gzip")]) {
        return;
    }
    let bench = Bench::new();
    let layout = Layout::new(bench.path("image"));
    let bytes = "0".repeat(3 << 20);
    let tar = layer(&[file("a", &bytes)]);
    let descriptor = layout.blob(GZIPPED, gzipped(&tar, &bench.path("")));
    layout.index(&layout.manifest(&[digest(&tar), digest(&tar)], &[descriptor.clone(), descriptor]));
    let (_, said) = bench.run("build disk.img --from image --max-unpacked 4M", 2);
    assert!(said.contains("exceed the limit of 4 MiB\n  help: use --max-unpacked SIZE"), "{said}");
    bench.run("build -q -t ext2 disk.img --from image --max-unpacked 7M", 0);
    // Links to one layer in the output of `docker save`.
    let saved = bench.path("saved");
    fs::create_dir(&saved).unwrap();
    fs::write(saved.join("0.tar"), &tar).unwrap();
    std::os::unix::fs::symlink("0.tar", saved.join("1.tar")).unwrap();
    fs::hard_link(saved.join("0.tar"), saved.join("2.tar")).unwrap();
    fs::write(saved.join("config.json"), "{}").unwrap();
    for (other, source) in
        [("1.tar", "saved"), ("2.tar", "saved"), ("1.tar", "saved.tar"), ("2.tar", "saved.tar")]
    {
        let manifest = format!("[{{\"Config\":\"config.json\",\"Layers\":[\"0.tar\",\"{other}\"]}}]");
        fs::write(saved.join("manifest.json"), manifest).unwrap();
        let tar = bench.path("saved.tar");
        call("tar", ["-cf".as_ref(), tar.as_os_str(), "-C".as_ref(), saved.as_os_str(), ".".as_ref()])
            .unwrap();
        let line = format!("build -F disk.img --from oci:{source} --max-unpacked 2M");
        assert!(bench.run(&line, 2).1.contains("exceed the limit of 2 MiB\n"), "{other} in {source}");
        bench.run(&format!("build -F -q -t ext2 disk.img --from oci:{source} --max-unpacked 4M"), 0);
    }
}

#[test]
fn a_fifo_in_the_place_of_a_blob_is_refused_at_once() {
    let bench = Bench::new();
    let layout = Layout::new(bench.path("image"));
    let tar = layer(&[file("a", "1")]);
    layout.index(&layout.manifest(&[digest(&tar)], &[layout.blob(LAYER, &tar)]));
    let blob = bench.path("image/blobs/sha256").join(digest(&tar));
    let (unread, other) = ("not a regular file", "neither an OCI layout nor an output of docker save");
    for (path, why) in [(blob, unread), (bench.path("image/index.json"), other)] {
        fs::remove_file(&path).unwrap();
        call("mkfifo", [path.as_os_str()]).unwrap();
        let mut build = program("timeout");
        let command = bench.command("build disk.img --from oci:image");
        build
            .arg(Duration::from_secs(30).as_secs().to_string())
            .arg(command.get_program())
            .args(command.get_args());
        let output = build.current_dir(bench.path("")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}

#[test]
fn markers_of_aufs_in_layers_are_not_files() {
    let bench = Bench::new();
    let (dir, link) = (EntryType::Directory, EntryType::Link);
    let below = layer(&[file("old", "1"), ("d", dir, "", ""), file("d/kept", "2"), file("d/gone", "3")]);
    let above = layer(&[
        (".wh..wh.plnk", dir, "", ""),
        file(".wh..wh.plnk/12.34", "shared"),
        (".wh..wh.plnk/below", dir, "", ""),
        (".wh..wh.orph", dir, "", ""),
        file(".wh..wh.orph/x", "orphan"),
        file(".wh..wh.aufs", ""),
        ("one", link, ".wh..wh.plnk/12.34", ""),
        ("two", link, ".wh..wh.plnk/12.34", ""),
        file("d/.wh.gone", ""),
        file("d/.wh.odd/file", "below a whiteout"),
        file(".wh.old", ""),
    ]);
    fs::write(bench.path("below.tar"), below).unwrap();
    fs::write(bench.path("above.tar"), &above).unwrap();
    bench.run("build -q -t ext2 disk.img --from layer:below.tar layer:above.tar", 0);
    let mut found = files(&bench, "disk.img");
    found.sort();
    assert_eq!(found, ["d/kept=1", "d=2", "one=2", "two=2"]);
    assert_eq!(bench.run("cat disk.img:/two", 0).0, "shared");
    if require(&[Oracle::Program("e2fsck")]) {
        bench.fsck("disk.img");
    }
    // In an archive that is not a layer they are files.
    bench.run("build -q -F -t ext2 disk.img --from tar:above.tar", 0);
    assert!(files(&bench, "disk.img").contains(&".wh..wh.orph/x=1".to_owned()));
}
