{{/* RedisQuorums by name, as a map in YAML; empty where there are none. */}}
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

{{/* Names and urls of masters, for people, in one order. */}}
{{- define "redlock-operator.mastersText" -}}
{{- $texts := list -}}
{{- range . -}}
{{- $texts = append $texts (printf "%s=%s" .name .url) -}}
{{- end -}}
{{- $texts | sortAlpha | join ", " -}}
{{- end -}}

{{/* Refuses to install over a RedisQuorum that stayed from a release before and has other masters: the operator cannot
replace them. An upgrade is not refused: there the operator changes urls one by one. Nothing is looked up by `helm template`. */}}
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

{{/* The masters. Short: a StatefulSet adds a hash of its own to it, as the value of a label. */}}
{{- define "redlock-operator.quickstartName" -}}
{{- printf "%s-quickstart" (include "redlock-operator.fullname" . | trunc 40 | trimSuffix "-") -}}
{{- end -}}

{{- define "redlock-operator.quickstartSecret" -}}
{{- .Values.quickstart.existingSecret | default (include "redlock-operator.quickstartName" .) -}}
{{- end -}}

{{/* Frozen, as that of the operator. */}}
{{- define "redlock-operator.quickstartLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: quickstart-master
{{- end -}}

{{/* Kinds that locks may switch. */}}
{{- define "redlock-operator.targetKinds" -}}
{{- $kinds := .Values.targetKinds -}}
{{- if and .Values.quickstart.enabled (not $kinds) -}}
{{- $kinds = list (dict "group" "" "resource" "pods") -}}
{{- end -}}
{{- toYaml $kinds -}}
{{- end -}}
