//! Describes another cluster that has the name of this one on the masters.

use crate::{
    api::CLUSTER_COPY,
    controller::{
        coordination::original_uid,
        problem::{Problem, Reason},
    },
    lease::ClusterId,
};

fn copied(own: &ClusterId) -> Problem {
    Problem::new(
        Reason::ClusterCopied,
        format!(
            "the objects of this cluster are a copy of those of another cluster, which uses the quorum: the namespace \
             kube-system has the UID {} in both. Remove the operator here, or give this cluster another name by the Helm \
             value clusterName, or --cluster of `redlock operator`. If this cluster replaces the other one, which is gone for \
             good, remove the annotation {CLUSTER_COPY} from the Lease of the operator",
            original_uid(own.uid()),
        ),
    )
}

pub(super) fn clash(own: &ClusterId, other: &ClusterId) -> Problem {
    if original_uid(own.uid()) == original_uid(other.uid()) {
        return copied(own);
    }
    Problem::new(
        Reason::ClusterNameNotUnique,
        format!(
            "another cluster also has the name {:?}: its UID is {}, the UID of this cluster is {}; give this cluster \
             another name by the Helm value clusterName, or --cluster of `redlock operator`",
            own.name(),
            other.uid(),
            own.uid()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clash_with_the_original_names_the_copy_and_the_remedy() {
        let named = |uid: &str| ClusterId::new("eu-1", uid).unwrap();
        let problem = clash(&named("2420.0a1b2c3d"), &named("2420"));
        assert_eq!(problem.reason, Reason::ClusterCopied);
        assert!(problem.message.contains(CLUSTER_COPY), "{}", problem.message);
    }

    /// A user of the chart knows its values, and never typed the flag.
    #[test]
    fn clash_names_the_value_of_the_chart_before_the_flag() {
        let named = |uid: &str| ClusterId::new("eu-1", uid).unwrap();
        let text = clash(&named("2420"), &named("0b7e")).message;
        let value = text.find("Helm value clusterName").unwrap();
        assert!(text.find("--cluster").unwrap() > value, "{text}");
        let values = include_str!("../../../charts/redlock-operator/values.yaml");
        assert!(values.contains("\nclusterName: "));
    }
}
