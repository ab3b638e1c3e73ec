{{/* All pods of the chart. The templates here take (dict "top" $ "component" …), of the pod. */}}

{{/* Frozen: the selector of a workload can never change. */}}
{{- define "redlock-operator.componentLabels" -}}
app.kubernetes.io/name: {{ .top.Chart.Name }}
app.kubernetes.io/instance: {{ .top.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Without the version of the chart: a rollout passes every lock on. Labels and annotations may ask for the sidecar of a mesh: it would
never end in a hook, and the processes of a node must work without one. */}}
{{- define "redlock-operator.podMetadata" -}}
{{- $values := .top.Values -}}
{{- $labels := dict -}}
{{- $annotations := dict -}}
{{- if eq .component "operator" -}}
{{- $labels = $values.podLabels -}}
{{- $annotations = $values.podAnnotations -}}
{{- else if eq .component "drain" -}}
{{- $labels = $values.drain.podLabels -}}
{{- $annotations = $values.drain.podAnnotations -}}
{{- end -}}
{{- with $annotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{ end -}}
{{- $selected := include "redlock-operator.componentLabels" . | fromYaml -}}
labels:
  {{- mergeOverwrite dict $values.commonLabels $labels $selected | toYaml | nindent 2 }}
{{- end -}}

{{/* The fields of a pod that values set. Pods of nodes run on each node, as root and in its own runtime. */}}
{{- define "redlock-operator.podSettings" -}}
{{- $values := .top.Values -}}
{{- $names := list "dnsConfig" "hostAliases" -}}
{{- $spec := dict "imagePullSecrets" (include "redlock-operator.imagePullSecrets" .top | fromYamlArray) -}}
{{- if not (hasPrefix "node-" .component) -}}
{{- $names = concat $names (list "nodeSelector" "priorityClassName" "runtimeClassName" "tolerations") -}}
{{- $_ := set $spec "securityContext" (include "redlock-operator.podSecurityContext" . | fromYaml) -}}
{{- end -}}
{{- if eq .component "operator" -}}
{{- /* A constraint without a selector matches no pod. */}}
{{- $selector := dict "matchLabels" (include "redlock-operator.selectorLabels" .top | fromYaml) -}}
{{- $spread := list -}}
{{- range $values.topologySpreadConstraints -}}
{{- $spread = append $spread (.labelSelector | default $selector | set (deepCopy .) "labelSelector") -}}
{{- end -}}
{{- $_ := set $spec "topologySpreadConstraints" $spread -}}
{{- else if hasKey $spec "securityContext" -}}
{{- /* The other parts of an affinity are between replicas. */}}
{{- $_ := set $spec "affinity" (pick $values.affinity "nodeAffinity") -}}
{{- end -}}
{{- range $names -}}
{{- $_ := set $spec . (index $values .) -}}
{{- end -}}
{{- range $name, $value := $spec -}}
{{- if not $value -}}
{{- $_ := unset $spec $name -}}
{{- end -}}
{{- end -}}
{{- with $spec -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* The Pod Security Standard "restricted". The image names its user, and a cluster may assign another one, as OpenShift does. */}}
{{- define "redlock-operator.podSecurityContext" -}}
{{- $base := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- $own := ternary .top.Values.quickstart.podSecurityContext dict (eq .component "quickstart-master") -}}
{{- range list .top.Values.podSecurityContext $own -}}
{{- $_ := include "redlock-operator.withoutNulls" . | fromYaml | mergeOverwrite $base -}}
{{- end -}}
{{- toYaml $base -}}
{{- end -}}

{{/* Of a container that is not of a node. Takes the top. */}}
{{- define "redlock-operator.containerSecurityContext" -}}
{{- $base := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- include "redlock-operator.withoutNulls" .Values.securityContext | fromYaml | mergeOverwrite $base | toYaml -}}
{{- end -}}

{{/* The image of a container with the program. Takes the top. */}}
{{- define "redlock-operator.program" -}}
image: {{ include "redlock-operator.image" . | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{/* Secrets to pull all images with, as a list in YAML. Takes the top. */}}
{{- define "redlock-operator.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat .Values.image.pullSecrets .Values.global.imagePullSecrets -}}
{{- $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) -}}
{{- end -}}
{{- $secrets | uniq | toYaml -}}
{{- end -}}
