use super::{
    Bootstrap, UserDataError,
    mime::{Part, SHELL_SCRIPT, archive, is_archive, parts},
};

impl Bootstrap<'_> {
    /// Amazon Linux 2: what the user wrote, then a script that starts the kubelet.
    pub(super) fn al2(&self) -> Result<String, UserDataError> {
        let mut all = match self.custom {
            Some(text) if is_archive(text) => parts(text)?,
            Some(text) => vec![Part::new(SHELL_SCRIPT, text)],
            None => Vec::new(),
        };
        all.push(Part::new(SHELL_SCRIPT, self.al2_script()));
        Ok(archive(&all))
    }

    /// `bootstrap.sh` takes no arguments with an equals sign.
    fn al2_script(&self) -> String {
        let cluster = self.cluster;
        let ca_bundle = cluster.ca_bundle.as_ref().map(|text| format!(" --b64-cluster-ca '{text}'"));
        let dns = self.settings.cluster_dns.first();
        let call = format!(
            "/etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}'{}",
            cluster.name,
            cluster.endpoint,
            ca_bundle.unwrap_or_default()
        );
        let lines = [
            Some(call),
            dns.filter(|ip| ip.contains(':')).map(|_| "--ip-family ipv6".to_owned()),
            dns.map(|ip| format!("--dns-cluster-ip '{ip}'")),
            self.settings.max_pods_count().map(|_| "--use-max-pods false".to_owned()),
            Some(format!("--kubelet-extra-args '{}'", self.kubelet_args())),
            self.is_raid0.then(|| "--local-disks raid0".to_owned()),
        ];
        let call = lines.into_iter().flatten().collect::<Vec<_>>().join(" \\\n");
        format!(
            "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n{call}"
        )
    }
}
