{{/* RedisQuorums by name, as a map in YAML; empty without any. */}}
{{- define "redlock-operator.quorums" -}}
{{- $quorums := deepCopy .Values.quorums -}}
{{- if .Values.quickstart.enabled -}}
{{- $name := include "redlock-operator.quickstartName" . -}}
{{- $masters := list -}}
{{- range $index := until (int .Values.quickstart.masters) -}}
{{- $masters = append $masters (dict "name" (printf "m%d" $index) "url" (printf "redis://%s-%d.%s.%s.svc:6379" $name $index $name $.Release.Namespace)) -}}
{{- end -}}
{{- $secret := dict "name" (include "redlock-operator.quickstartSecret" .) "namespace" .Release.Namespace -}}
{{- if hasKey $quorums .Values.quickstart.quorumName -}}
{{- fail (printf "quickstart.quorumName: quorums has a RedisQuorum %s already: give another name" .Values.quickstart.quorumName) -}}
{{- end -}}
{{- $_ := set $quorums .Values.quickstart.quorumName (dict "masters" $masters "auth" (dict "secretRef" $secret) "firstStart" "Immediate") -}}
{{- end -}}
{{- with $quorums -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* The masters. Short: a StatefulSet adds a hash of its own to it, as the value of a label. */}}
{{- define "redlock-operator.quickstartName" -}}
{{- printf "%s-quickstart" (include "redlock-operator.fullname" . | trunc 40 | trimSuffix "-") -}}
{{- end -}}

{{- define "redlock-operator.quickstartSecret" -}}
{{- .Values.quickstart.existingSecret | default (include "redlock-operator.quickstartName" .) -}}
{{- end -}}

{{- define "redlock-operator.quickstartLabels" -}}
{{- include "redlock-operator.componentLabels" (dict "top" . "component" "quickstart-master") -}}
{{- end -}}

{{/* Fields that locks may set, RESOURCE.GROUP:PATH, …. Refuses those of resources that carry rights or run code. */}}
{{- define "redlock-operator.targetFields" -}}
{{- $groups := list "admissionregistration.k8s.io" "apiextensions.k8s.io" "apiregistration.k8s.io" "apps" "authentication.k8s.io" "authorization.k8s.io" "batch" "certificates.k8s.io" "coordination.k8s.io" "extensions" "policy" "rbac.authorization.k8s.io" "redlock.dev" -}}
{{- $fields := list -}}
{{- range .Values.targetFields -}}
{{- $group := .group | default "" -}}
{{- $of := printf "%s%s" .resource (ternary (printf ".%s" $group) "" (ne $group "")) -}}
{{- if and (eq $group "") (ne .resource "services") -}}
{{- fail (printf "targetFields: %s without a group is a resource of the core group, of which action Patch never switches any but services: Secrets, ServiceAccounts and pods carry rights or run code. Remove %s:%s, or give its group" .resource $of .path) -}}
{{- else if has $group $groups -}}
{{- fail (printf "targetFields: %s is a resource that action Patch never switches: a lock could grant rights, change what the API server admits or run other code. Workloads are switched by Scale and Suspend, Leases by Lease (targetKinds). Remove %s:%s" $of $of .path) -}}
{{- end -}}
{{- $fields = append $fields (printf "%s:%s" $of .path) -}}
{{- end -}}
{{- join "," $fields -}}
{{- end -}}

{{/* Kinds that locks may switch. */}}
{{- define "redlock-operator.targetKinds" -}}
{{- $kinds := .Values.targetKinds -}}
{{- if and .Values.quickstart.enabled (not $kinds) -}}
{{- $kinds = list (dict "group" "" "resource" "pods") -}}
{{- end -}}
{{- toYaml $kinds -}}
{{- end -}}
