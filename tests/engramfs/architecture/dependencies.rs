//! What the manifest says of the dependencies.

/// Each dependency has its reason on its line, and the number of packages is the one that a comment notes, so that a change
/// which brings many more is seen.
pub fn unexplained(manifest: &str, lock: &str) -> Vec<String> {
    let mut found = Vec::new();
    let packages = lock.lines().filter(|line| *line == "[[package]]").count();
    let noted = format!("# {packages} packages in Cargo.lock");
    if !manifest.lines().any(|line| line.starts_with(&noted)) {
        found.push(format!("Cargo.toml does not say '{noted}'"));
    }
    let mut is_dependency = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_dependency = line.ends_with("dependencies]");
        }
        let named = line.split_once(" = ").filter(|_| is_dependency);
        if let Some((name, _)) = named.filter(|(_, rest)| !rest.contains("  # ")) {
            found.push(format!("Cargo.toml does not say what {name} is for"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::unexplained;

    const LOCK: &str = "[[package]]\nname = \"a\"\n\n[[package]]\nname = \"b\"\n";

    #[test]
    fn a_dependency_without_a_reason_and_a_wrong_number_are_found() {
        let good = "# 2 packages in Cargo.lock\n[dependencies]\na = \"1\"   # hashes\n[profile.dev]\nopt-level = 1\n";
        assert!(unexplained(good, LOCK).is_empty());
        assert_eq!(unexplained(&good.replace("2 packages", "3 packages"), LOCK).len(), 1);
        assert_eq!(unexplained(&good.replace("   # hashes", ""), LOCK), ["Cargo.toml does not say what a is for"]);
    }
}
