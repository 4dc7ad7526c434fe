//! Servers that fail, hang or lie.

use super::*;

/// Serves a file of 16 MiB. Reads no call before the client has received the reply to the last one.
fn serve_one_by_one(mut stream: UnixStream) -> Option<()> {
    const LEN: u32 = 1 << 20;
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut attributes = fake::attributes(2);
    attributes[20..28].copy_from_slice(&(16_u64 << 20).to_be_bytes());
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call).ok()?;
        let results = match word(&call, 20) {
            1 => [words(&[0]), fake::attributes(1)].concat(),
            3 => [words(&[0, 4, 2, 1]), attributes.clone(), words(&[0])].concat(),
            6 => {
                let count = word(&call, call.len() - 4);
                [words(&[0, 0, count, 0, count]), vec![5; count as usize]].concat()
            }
            7 => words(&[0, 0, 0, LEN, 2, 0, 0]),
            _ => [words(&[0, 0, LEN, 0, 0, LEN]), vec![0; 40]].concat(),
        };
        let reply = [words(&[word(&call, 0), 1, 0, 0, 0, 0]), results].concat();
        stream.write_all(&(0x8000_0000 | reply.len() as u32).to_be_bytes()).ok()?;
        stream.write_all(&reply).ok()?;
    }
}

#[test]
fn writes_do_not_wait_for_a_server_that_waits_until_its_replies_are_received() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || serve_one_by_one(theirs));
    let export = Export::over(ours.into(), &1_u32.to_be_bytes(), Duration::from_secs(60)).unwrap();
    let fs = export.mount(Access::ReadWrite).unwrap();
    let file = at(&*fs, "file").unwrap();
    assert_eq!(read_at(&*fs, file, 0, 1000), [5; 1000]);
    // Requests 4 MiB more than it returns, which do not fit into the socket.
    assert_eq!(read_at(&*fs, file, 1000, 1000), [5; 1000]);
    write(fs.writable().unwrap(), file, 0, &vec![7; 8 << 20]).unwrap();
}

#[test]
fn a_server_that_restarts_costs_nothing() {
    let (_fake, fs) = fake(Mood::RestartsOnce);
    let file = at(&*fs, "file").unwrap();
    assert!(read(&*fs, file).unwrap() == fake::contents());
}

#[test]
fn a_server_that_hangs_costs_one_call_its_deadline_and_later_calls_nothing() {
    let (_fake, fs) = fake(Mood::Hangs);
    let file = at(&*fs, "file").unwrap();
    let start = Instant::now();
    assert_eq!(read(&*fs, file), Err(nfs("did not respond in time")));
    for _ in 0..100 {
        assert_eq!(at(&*fs, "file"), Err(nfs("closed the connection")));
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_call_and_its_repetitions_have_one_deadline_if_the_server_is_never_ready() {
    for procedure in [3, 6, 7] {
        println!("{procedure}");
        let (_fake, fs) = fake(Mood::NeverReady(procedure));
        let create = || fs.writable().unwrap().create(fs.root(), name("file"), &new(FileKind::Regular, ""));
        let write = |file| write(fs.writable().unwrap(), file, 0, b"text");
        let found = match procedure {
            3 => at(&*fs, "file").map(drop),
            6 => {
                let file = create().unwrap().ino;
                write(file).unwrap();
                fs.read(&LayoutLock::new().shared(), file, 0, &mut [0; 4]).map(drop)
            }
            _ => write(create().unwrap().ino),
        };
        assert_eq!(found, Err(nfs("did not respond in time")));
        // The server has answered each call, so it gets further calls.
        let expected = if procedure == 3 { Err(nfs("did not respond in time")) } else { Ok(()) };
        assert_eq!(at(&*fs, "file").map(drop), expected);
    }
}

#[test]
fn a_server_that_fails_or_lies_costs_an_error() {
    let nonsense = nfs("sent an invalid reply");
    for (mood, expected) in [
        (Mood::Dies, nfs("closed the connection")),
        (Mood::HugeRecord, nonsense),
        (Mood::Cut, nonsense),
        (Mood::Long, nonsense),
    ] {
        println!("{mood:?}");
        let (_fake, fs) = fake(mood);
        let file = at(&*fs, "file").unwrap();
        assert_eq!(read(&*fs, file), Err(expected));
    }
    for mood in [Mood::Loop, Mood::Slash, Mood::SameCookie] {
        println!("{mood:?}");
        let (_fake, fs) = fake(mood);
        assert_eq!(list(&*fs, fs.root()), Err(nonsense));
    }
    let (_fake, fs) = fake(Mood::Stale);
    assert_eq!(at(&*fs, "link"), Err(Error::Stale));
    let fake = Fake::start(Mood::Rejects);
    let refused = mount("127.0.0.1", "/srv", fake.port, fake.port, Duration::from_secs(30)).err().unwrap();
    assert_eq!(refused.to_string(), "the NFS server rejects the call");
}

#[test]
fn a_listing_without_an_end_fails_at_the_limit_also_in_portions() {
    for (mood, portion) in [(Mood::Endless, 5000), (Mood::Endless, 50), (Mood::EndlessDots, 50)] {
        println!("{mood:?}, {portion}");
        let fake = Fake::start(mood);
        let address = NfsAddress {
            host: "127.0.0.1".into(),
            export: b"/srv".into(),
            port: Some(fake.port),
            mount_port: Some(fake.port),
            entries_max: Some(1000),
        };
        let fs = Export::open(&address).unwrap().mount(Access::ReadOnly).unwrap();
        let (mut from, mut count) = (Cookie::START, 0);
        let error = loop {
            let mut in_portion = 0;
            let listed = fs.read_dir(fs.root(), from, &mut |entry| {
                (from, count, in_portion) = (entry.unwrap().next, count + 1, in_portion + 1);
                if in_portion < portion { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            assert!(count <= 1000);
            if let Err(error) = listed {
                break error;
            }
        };
        let expected = if mood == Mood::EndlessDots { 0 } else { 1000 };
        assert_eq!((error, count), (nfs("lists more entries of a directory than permitted"), expected));
        // A new listing starts from the first entry.
        let first = fs.read_dir(fs.root(), Cookie::START, &mut |_| ControlFlow::Break(()));
        assert_eq!(first.is_ok(), mood == Mood::Endless);
    }
}

/// Connects to a server with little memory for its files.
pub(super) fn with_few_files(fake: &Fake, files_max: usize) -> Arc<dyn FileSystem> {
    let address = NfsAddress {
        host: "127.0.0.1".into(),
        export: b"/srv".into(),
        port: Some(fake.port),
        mount_port: Some(fake.port),
        entries_max: None,
    };
    let export = Export::open(&address).unwrap().valid_for(ALWAYS).files_max(files_max);
    export.mount(Access::ReadWrite).unwrap()
}

#[test]
fn a_tree_without_an_end_fails_when_no_further_directory_can_be_remembered() {
    let fake = Fake::start(Mood::EndlessTree);
    let fs = with_few_files(&fake, 5000);
    let (mut left, mut count) = (VecDeque::from([fs.root()]), 0);
    let error = loop {
        let dir = left.pop_front().expect("the tree has no end");
        let mut in_directory = 0;
        let listed = fs.read_dir(dir, Cookie::START, &mut |entry| {
            left.push_back(entry.unwrap().ino);
            (count, in_directory) = (count + 1, in_directory + 1);
            if in_directory < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        fs.forget(dir);
        if let Err(error) = listed {
            break error;
        }
    };
    assert_eq!((error, count), (nfs("has more directories than obento can remember"), 4999));
    // The known directories can still be used.
    let known = left.pop_front().unwrap();
    assert!(fs.getattr(known).unwrap().is_dir());
    let listed = fs.read_dir(fs.root(), Cookie::START, &mut |_| ControlFlow::Break(()));
    assert_eq!(listed, Ok(()));
}

#[test]
fn a_host_without_a_server_is_reported() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let refused = mount("127.0.0.1", "/srv", port, port, Duration::from_secs(30)).err().unwrap();
    assert!(refused.to_string().starts_with("cannot connect to the MOUNT server at 127.0.0.1:"), "{refused}");
}

#[test]
fn a_server_that_has_ended_raises_no_sigpipe() {
    expect_no_sigpipe("failures::a_server_that_has_ended_raises_no_sigpipe", || {
        let (client, server) = UnixStream::pair().unwrap();
        drop(server);
        let export = Export::over(client.into(), b"root", Duration::from_secs(20)).unwrap();
        assert!(export.mount(Access::ReadOnly).is_err());
    });
}
