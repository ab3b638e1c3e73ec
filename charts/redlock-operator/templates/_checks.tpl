{{/* Checks of the cluster: objects that an installation conflicts with, and objects that an upgrade must not change. Helm or the
operator would report these errors later, or with fewer details. `helm template` reads no objects. */}}

{{/* Namespaces, for people. */}}
{{- define "redlock-operator.namespacesText" -}}
{{- if . }}{{ printf "namespaces %s" (join ", " .) }}{{ else }}{{ "all namespaces" }}{{ end -}}
{{- end -}}

{{/* Refuses to follow a namespace that another release follows: both would switch the same targets. An upgrade may widen
watchNamespaces of either, so it is checked like an installation, and against the operators of all releases. */}}
{{- define "redlock-operator.checkOverlap" -}}
{{- if and .Values.overlapCheck (or .Release.IsInstall .Release.IsUpgrade) -}}
{{- $release := .Release -}}
{{- $own := .Values.watchNamespaces | uniq -}}
{{- range (lookup "apps/v1" "Deployment" "" "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $name := get $labels "app.kubernetes.io/instance" -}}
{{- $namespace := .metadata.namespace -}}
{{- $operator := and (eq (get $labels "app.kubernetes.io/name") $.Chart.Name) (eq (get $labels "app.kubernetes.io/component") "operator") -}}
{{- if and $operator (or (ne $name $release.Name) (ne $namespace $release.Namespace)) -}}
{{- $theirs := include "redlock-operator.followedBy" . | fromYamlArray -}}
{{- $both := or (not $own) (not $theirs) -}}
{{- range $own -}}
{{- $both = or $both (has . $theirs) -}}
{{- end -}}
{{- if $both -}}
{{- fail (printf "watchNamespaces: release %s in namespace %s runs an operator that follows %s, and this one would follow %s: two must not follow the same namespace. Use that release, or give each of the two watchNamespaces of its own" $name $namespace (include "redlock-operator.namespacesText" $theirs) (include "redlock-operator.namespacesText" $own)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The namespaces that the operator of a Deployment follows, in YAML: all, if empty. */}}
{{- define "redlock-operator.followedBy" -}}
{{- $names := list -}}
{{- range (first .spec.template.spec.containers).env -}}
{{- if and (eq .name "REDLOCK_WATCH_NAMESPACES") .value -}}
{{- $names = splitList "," .value -}}
{{- end -}}
{{- end -}}
{{- $names | toYaml -}}
{{- end -}}

{{/* The definitions belong to one release. */}}
{{- define "redlock-operator.checkDefinitions" -}}
{{- if and .Release.IsInstall .Values.crds.install -}}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "leaderlocks.redlock.dev" | default dict -}}
{{- $annotations := dig "metadata" "annotations" dict $definition -}}
{{- $name := get $annotations "meta.helm.sh/release-name" -}}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" -}}
{{- if and $name $namespace (or (ne $name .Release.Name) (ne $namespace .Release.Namespace)) -}}
{{- $runs := false -}}
{{- range (lookup "apps/v1" "Deployment" $namespace "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- if and (eq (get $labels "app.kubernetes.io/instance") $name) (eq (get $labels "app.kubernetes.io/component") "operator") -}}
{{- $runs = true -}}
{{- end -}}
{{- end -}}
{{- if $runs -}}
{{- fail (printf "crds.install: the definitions of LeaderLock and RedisQuorum belong to release %s in namespace %s, which upgrades them: set crds.install=false" $name $namespace) -}}
{{- else -}}
{{- fail (printf "crds.install: the definitions of LeaderLock and RedisQuorum stayed from release %s in namespace %s. To let this release take them over: kubectl annotate --overwrite crd leaderlocks.redlock.dev redisquorums.redlock.dev meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s" $name $namespace .Release.Name .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name as the operator and the agents accept it. A pattern of the schema would be the message. */}}
{{- define "redlock-operator.checkClusterForm" -}}
{{- if not (regexMatch "^[^|/:\\s]{1,63}$" .Values.clusterName) -}}
{{- fail (printf "clusterName: %q is not the name of a cluster: use 1 to 63 characters without \"|\", \"/\", \":\" and white space, such as prod-a for the EKS cluster arn:aws:eks:REGION:ACCOUNT:cluster/prod-a" .Values.clusterName) -}}
{{- end -}}
{{- end -}}

{{/* Refuses an upgrade that renames the cluster: locks may be held under the name before. */}}
{{- define "redlock-operator.checkClusterName" -}}
{{- if and .Release.IsUpgrade (not .Values.allowClusterRename) -}}
{{- $own := .Values.clusterName -}}
{{- $release := .Release -}}
{{- range (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- if and (eq (get $labels "app.kubernetes.io/instance") $release.Name) (eq (get $labels "app.kubernetes.io/component") "operator") -}}
{{- $deployment := .metadata.name -}}
{{- range (first .spec.template.spec.containers).env -}}
{{- if and (eq .name "REDLOCK_CLUSTER") .value (ne (.value | default "") $own) -}}
{{- fail (printf "clusterName: release %s in namespace %s runs as cluster %q, and this upgrade would rename it to %q: the name must not change while locks are held. To keep the name: --set clusterName=%s, or the same in the values file. To rename the cluster: stop the workloads by `redlock drain --namespace %s --deployment %s`, then upgrade with --set allowClusterRename=true" $release.Name $release.Namespace .value $own .value $release.Namespace $deployment) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names and urls of masters, for people, in one order. */}}
{{- define "redlock-operator.mastersText" -}}
{{- $texts := list -}}
{{- range . -}}
{{- $texts = append $texts (printf "%s=%s" .name .url) -}}
{{- end -}}
{{- $texts | sortAlpha | join ", " -}}
{{- end -}}

{{/* Refuses to install over a RedisQuorum that stayed from a release before and has other masters: the operator cannot
replace them. An upgrade is not refused: there the operator changes urls one by one. */}}
{{- define "redlock-operator.checkQuorums" -}}
{{- if and .Release.IsInstall (.Capabilities.APIVersions.Has "redlock.dev/v1alpha1/RedisQuorum") -}}
{{- range $name, $spec := include "redlock-operator.quorums" . | fromYaml -}}
{{- with lookup "redlock.dev/v1alpha1" "RedisQuorum" "" $name -}}
{{- $there := include "redlock-operator.mastersText" .spec.masters -}}
{{- $wanted := include "redlock-operator.mastersText" $spec.masters -}}
{{- if ne $there $wanted -}}
{{- fail (printf "quorums.%s: RedisQuorum %s is in this cluster with other masters (%s) than the values have (%s); it stayed from a release before, and would stay in force. When no operator, agent or `redlock run` of any cluster uses those masters any more: kubectl delete redisquorum %s, then install again. Else give the RedisQuorum of the values another name" $name $name $there $wanted $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A DaemonSet with hostPath volumes whose pods the namespace refuses would only show it in its events. */}}
{{- define "redlock-operator.checkFencing" -}}
{{- if .Values.fencing.enabled -}}
{{- $redis := .Values.fencing.redis -}}
{{- if not (include "redlock-operator.fencingSecret" .) -}}
{{- if or $redis.ca $redis.clientCertificate -}}
{{- fail "fencing.redis.secretName is empty: name the Secret with the certificates of fencing.redis.ca and fencing.redis.clientCertificate" -}}
{{- end -}}
{{- range $name, $spec := include "redlock-operator.quorums" . | fromYaml -}}
{{- if $spec.auth -}}
{{- fail (printf "fencing.redis.secretName is empty, and quorums.%s has auth: name a Secret of namespace %s with a Redis user that only reads (docs/redis-acl.md)" $name $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $namespace := lookup "v1" "Namespace" "" .Release.Namespace | default dict -}}
{{- $level := dig "metadata" "labels" "pod-security.kubernetes.io/enforce" "privileged" $namespace -}}
{{- if ne $level "privileged" -}}
{{- fail (printf "fencing.enabled: namespace %s enforces the Pod Security Standard %q, and the node agent has hostPath volumes. To allow it: kubectl label --overwrite namespace %s pod-security.kubernetes.io/enforce=privileged" .Release.Namespace $level .Release.Namespace) -}}
{{- end -}}
{{- else if .Release.IsUpgrade -}}
{{- $pods := include "redlock-operator.fencedPods" . -}}
{{- if $pods -}}
{{- fail (printf "fencing.enabled: this upgrade would remove the node agent while pods mount the volume fencing.redlock.dev, and they would stay Terminating: %s. Remove the volume from their templates, and upgrade when these pods are gone" $pods) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Pods that mount the volume, for people, where this release has a node agent. */}}
{{- define "redlock-operator.fencedPods" -}}
{{- if lookup "apps/v1" "DaemonSet" .Release.Namespace (include "redlock-operator.nodeAgent" .) -}}
{{- $names := list -}}
{{- range (lookup "v1" "Pod" "" "").items -}}
{{- $ended := and (has (dig "status" "phase" "" .) (list "Succeeded" "Failed")) (not .metadata.deletionTimestamp) -}}
{{- $name := printf "%s/%s" .metadata.namespace .metadata.name -}}
{{- range .spec.volumes -}}
{{- if and (not $ended) .csi -}}
{{- if eq .csi.driver "fencing.redlock.dev" -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $names | sortAlpha | join ", " -}}
{{- end -}}
{{- end -}}
