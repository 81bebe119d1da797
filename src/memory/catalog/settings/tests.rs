//! Values that settings take, inherit and store.

use super::*;

#[test]
fn a_fork_inherits_just_what_the_contract_says() {
    let mut settings = Settings::default();
    for (setting, value) in
        [(Setting::Strategy, "manual"), (Setting::Agent, "ann"), (Setting::Keep, "1d"), (Setting::Ttl, "1h")]
    {
        settings = settings.with_setting(setting, value);
    }
    let fork = settings.for_fork();
    assert_eq!(fork.strategy(), Strategy::Manual);
    assert_eq!((&**fork.get(Setting::Agent), &**fork.get(Setting::Ttl)), ("", ""));
    assert_eq!(fork.duration_nanos(Setting::Keep), Some(86_400_000_000_000));
    assert_eq!(&**settings.with_setting(Setting::ChildTtl, "7d").for_fork().get(Setting::Ttl), "7d");
    let page = include_str!("../../../../docs/SEMANTICS.md");
    let (_, section) = page.split_once("\n## Settings\n").unwrap();
    for setting in Setting::ALL {
        let name = format!("`{}`", setting.name());
        let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let mut cells = rows.map(|row| (row.split(" | ").next().unwrap(), row.rsplit(" | ").next().unwrap()));
        let (_, a_fork) = cells.find(|(names, _)| names.contains(&name)).unwrap();
        let is_taken_over = &**Settings::default().with_setting(setting, "1h").for_fork().get(setting) == "1h";
        assert_eq!(is_taken_over, a_fork == "inherits", "{name}");
    }
}

#[test]
fn each_setting_has_the_default_of_the_page() {
    let page = include_str!("../../../../docs/SEMANTICS.md");
    let (_, section) = page.split_once("\n## Settings\n").unwrap();
    for setting in Setting::ALL.into_iter().filter(|setting| *setting != Setting::Rules) {
        let name = format!("`{}`", setting.name());
        let mut rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
        let (names, rest) = rows.find(|(names, _)| names.contains(&name)).unwrap();
        let place = names.split(", ").position(|one| one == name).unwrap();
        let defaults = rest.split([';', ':', '|']).next().unwrap().split(", ");
        let expected = match defaults.map(str::trim).nth(place).unwrap() {
            "empty" | "unset" | "the user's name" => "",
            value => value.trim_matches('`'),
        };
        assert_eq!(setting.default_value(), expected, "{name}");
    }
}

#[test]
fn rules_restrict_writes_where_they_were_written_and_not_where_they_were_inherited() {
    let own = Settings::default().with_setting(Setting::Rules, "a text append");
    let fork = own.for_fork();
    let written = fork.for_fork().with_setting(Setting::Rules, "a text append");
    for (settings, binds) in
        [(&own, true), (&fork, false), (&fork.with_setting(Setting::Keep, "1d"), false), (&written, true)]
    {
        let read = Settings::read(&mut Reader::new(&stored(settings))).unwrap();
        assert_eq!((settings.binding_rules().is_some(), read.binding_rules().is_some()), (binds, binds));
        assert_eq!(settings.has_same_rules(&own), binds);
        assert_eq!((settings.has_inherited_rules(), read.has_inherited_rules()), (!binds, !binds));
    }
    assert!(Settings::default().binding_rules().is_none());
}

fn stored(settings: &Settings) -> Vec<u8> {
    let mut out = Writer::new();
    settings.write(&mut out);
    out.finish()
}

#[test]
fn a_stored_value_that_can_not_be_is_damage_and_no_default() {
    let settings =
        Settings::default().with_setting(Setting::Strategy, "manual").with_setting(Setting::Quota, "branches=7");
    let read = Settings::read(&mut Reader::new(&stored(&settings))).unwrap();
    assert_eq!(stored(&read), stored(&settings));
    for (setting, value) in
        [(Setting::Rules, "** best"), (Setting::Strategy, "best"), (Setting::Keep, "x"), (Setting::Language, "xx")]
    {
        let bytes = stored(&settings.with_setting(setting, value));
        let error = Settings::read(&mut Reader::new(&bytes)).err().unwrap();
        assert_eq!(error, CodecError::Setting(setting.name()));
    }
}

#[test]
fn a_setting_that_was_not_there_yet_has_its_default_and_an_unknown_one_is_refused() {
    let mut out = Writer::new();
    out.number(1).byte(Setting::Agent.code()).text("ann");
    let read = Settings::read(&mut Reader::new(out.as_slice())).unwrap();
    assert_eq!((&**read.get(Setting::Agent), &**read.get(Setting::Keep)), ("ann", "30d"));
    let mut out = Writer::new();
    out.number(1).byte(200).text("x");
    assert_eq!(Settings::read(&mut Reader::new(out.as_slice())).err(), Some(CodecError::Code(200)));
    assert_eq!(Setting::from_code(0), Err(CodecError::Code(0)));
    for setting in Setting::ALL {
        assert_eq!(Setting::from_code(setting.code()), Ok(setting));
    }
}

#[test]
fn bad_values_are_refused_with_what_to_write() {
    for (setting, value) in [
        (Setting::Strategy, "best"),
        (Setting::Dim, "0"),
        (Setting::Dim, "65537"),
        (Setting::Metric, "hamming"),
        (Setting::Agent, &"a".repeat(201)),
        (Setting::Ttl, "soon"),
        (Setting::Ttl, "0s"),
        (Setting::Keep, "-1d"),
        (Setting::ScratchSize, "many"),
        (Setting::ScratchSize, "1048577K"),
        (Setting::Quota, "rows=7"),
        (Setting::Gate, "approval"),
        (Setting::Gate, ""),
        (Setting::Gate, "deletes 3\nscore 0.9"),
        (Setting::Approvers, "ann"),
        (Setting::SignalScope, "mount"),
        (Setting::SignalTtl, "soon"),
    ] {
        assert!(check(setting, value).unwrap_err().advice().hint.starts_with("write "), "{}", setting.name());
    }
    let [most, more] = [64, 65].map(|count| check(Setting::Gate, &"puts 0\n".repeat(count)));
    assert!(most.is_ok() && more.unwrap_err().advice().hint.contains("up to 64 conditions"));
    assert_eq!(
        check(Setting::Gate, "approval 2 for files/core/**\ndeletes 3\n").unwrap(),
        "approval 2 for files/core/**\ndeletes 3"
    );
    assert_eq!(check(Setting::Ttl, "7d\n").unwrap(), "7d");
    assert_eq!(check(Setting::ScratchSize, "1024M").unwrap(), "1024M");
    for word in ["store", "session"] {
        assert_eq!(check(Setting::SignalScope, word).unwrap(), word);
    }
    assert_eq!(parse_size("64M"), Some(64 << 20));
}
